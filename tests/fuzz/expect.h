// What every fuzz target holds its parser to: it accepts or it says why not in one line; whatever else happens is a
// crash.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/tokenizer/bpe.h"
#include "gpt/tokenizer/bpe_files.h"

namespace gpt::fuzz {

inline void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzzing: expected %s\n", what);
  std::abort();
}

// True where it accepts. `code`: of the error with which it refuses.
template <class Function>
bool accept_or_refuse(Function&& function, ExitCode code = ExitCode::data) {
  constexpr size_t kLongestMessage = 1000;
  try {
    function();
    return true;
  } catch (const Error& error) {
    const std::string_view message = error.what();
    expect(error.code() == code, "an error of its own kind");
    expect(!message.empty() && message.find('\n') == std::string_view::npos, "a message of one line");
    expect(message.size() <= kLongestMessage, "a message that fits a screen");
    return false;
  }
}

// The input up to the first NUL byte, which is taken off: targets with several texts have them one behind the other.
inline std::string_view next_part(std::string_view& input) {
  const size_t end = input.find('\0');
  const std::string_view part = input.substr(0, end);
  input.remove_prefix(end == std::string_view::npos ? input.size() : end + 1);
  return part;
}

// A vocabulary that was accepted has to work, and to come back from its file. Throws gpt::Error where it is refused.
inline void use(tokenizer::BpeModel model, std::string_view text) {
  const tokenizer::BpeTokenizer tokenizer(std::move(model), "input");
  expect(tokenizer.decode(tokenizer.encode(text)) == text, "the text to come back from its ids");
  expect(tokenizer.decode(tokenizer.encode_with_specials(text)) == text,
         "the text to come back from its ids with special tokens");
  expect(tokenizer::parse_tokenizer_json(tokenizer.to_json(), "again") == tokenizer.model(),
         "the tokenizer to come back from its file");
}

}  // namespace gpt::fuzz
