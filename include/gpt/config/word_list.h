// A key whose value is some words: "a, b", "a b" or [a, b]; or texts in which there may be spaces, such as paths: "a, b" or [a, b]; or a
// command.
#pragma once

#include <string>
#include <vector>

namespace gpt::config {
struct Structure;

// Reading it throws gpt::Error(config) with the place of a part that is no word.
Structure word_list(std::vector<std::string>& words, bool may_have_spaces = false);

// A program and its arguments: [curl, -d, "@-", URL], each as it is; or a text whose words they are, which no shell reads.
Structure command_words(std::vector<std::string>& words);

}  // namespace gpt::config
