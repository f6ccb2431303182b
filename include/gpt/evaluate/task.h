// Which tasks there are. One is a file of JSON lines, an example a line, as its authors publish it and Hugging Face's datasets writes it.
//
//   hellaswag  ctx_a, ctx_b or ctx, activity_label, endings, label
//   arc        question, choices {text, label}, answerKey; or question {stem, choices}
//   piqa       goal, sol1, sol2, label
//   lambada    text, whose last word is to be found
//   wikitext   page, in WikiText's own spelling ("a , b @-@ c"), which is undone
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpt::evaluate {

enum class TaskKind { hellaswag, arc, piqa, lambada, wikitext };

struct Task {
  std::string name;  // as lm-evaluation-harness calls it
  TaskKind kind;
  std::string file;
};

// The task in NAME:FILE, which was given to `option`. arc_easy and arc_challenge are arc, and lambada_openai is lambada. Throws
// gpt::Error(config) naming what there is.
Task parse_task(std::string_view text, std::string_view option = "--tasks");
// Names stand for tasks in what is written, so each may be there once.
std::vector<Task> parse_tasks(const std::vector<std::string>& texts, std::string_view option = "--tasks");

}  // namespace gpt::evaluate
