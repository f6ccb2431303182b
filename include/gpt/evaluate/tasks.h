// Tasks in files of JSON lines, one example a line, as their authors publish them and Hugging Face's datasets writes them. The prompts are
// those of lm-evaluation-harness 0.4.13.
//
//   hellaswag  ctx_a, ctx_b or ctx, activity_label, endings, label
//   arc        question, choices {text, label}, answerKey; or question {stem, choices}
//   piqa       goal, sol1, sol2, label
//   lambada    text, whose last word is to be found
//   wikitext   page, in WikiText's own spelling ("a , b @-@ c"), which is undone
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/evaluate/example.h"

namespace gpt::evaluate {

enum class TaskKind { hellaswag, arc, piqa, lambada, wikitext };

struct Task {
  std::string name;  // as lm-evaluation-harness calls it
  TaskKind kind;
  std::string file;
};

// Of NAME:FILE. arc_easy and arc_challenge are arc, and lambada_openai is lambada. Throws gpt::Error(config) naming what there is.
Task parse_task(std::string_view text);

// `stride`: of wikitext, whose pages may be longer than the window. Throws gpt::Error(data) for a file that cannot be read or has no
// example.
std::unique_ptr<ExampleSource> open_task(const Task& task, const Encoding& encoding, int64_t stride);

// Documents as training reads them: the text of a special token is ordinary text.
std::unique_ptr<ExampleSource> open_text(const std::vector<std::string>& inputs, const std::string& text_field,
                                         const Encoding& encoding, int64_t stride);

}  // namespace gpt::evaluate
