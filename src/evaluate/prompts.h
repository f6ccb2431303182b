// From a line of a task to the texts that the model is given.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fields.h"
#include "gpt/evaluate/task.h"

namespace gpt::evaluate {

struct Question {
  std::string context;
  std::vector<std::string> answers;  // each follows the context after a space
  int64_t label;                     // the right one
};
// The question in a line of hellaswag, arc or piqa.
Question question_of(TaskKind kind, const Fields& line);

struct Cloze {
  std::string context, ending;  // the ending begins with its space
};
Cloze cloze_of(std::string_view text);  // all that follows the last space is the ending

// WikiText's pages have spaces around all punctuation, and @ around some. This is the text as somebody would write it.
std::string wikitext_as_written(std::string_view page);

}  // namespace gpt::evaluate
