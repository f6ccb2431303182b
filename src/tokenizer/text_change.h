// What tokenizer.json calls normalizers: changes to a text before it is split.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "matcher.h"

namespace gpt::tokenizer {

// Changes a text, which is valid UTF-8 and remains so. Safe to use from several threads at once.
using TextChange = std::function<void(std::string& text)>;

enum class UnicodeForm { nfc, nfd, nfkc, nfkd };

// By the tables of Unicode 9, which Hugging Face tokenizers has.
TextChange to_unicode_form(UnicodeForm form);
TextChange prepend(std::string prefix);  // to a text that is not empty
// Throws TextError, with an offset in the text, where the result has more than 64 MiB.
TextChange replace(std::shared_ptr<const Matcher> matcher, std::string content);
TextChange strip(bool left, bool right);  // white space

}  // namespace gpt::tokenizer
