// The value of an option as text: parsed strictly and independently of the locale, and written so that it reads back equal.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/config/option.h"

namespace gpt::config {

// Parses `text` into the option's target. `is_quoted`: it stood in quotes, so that it is text even if it looks like a
// number. Returns what is wrong ("must be a whole number >= 1, got 'x'"), or nothing when the target was set.
[[nodiscard]] std::optional<std::string> assign(const Option& option, std::string_view text, bool is_quoted);

// Throws gpt::Error(config) that names the first row whose value is out of its range. Lists of texts are longer afterwards.
void check_values(const std::vector<Option>& rows);

// What a word means where true or false is expected: true, yes, on, false, no, off, in capitals or small letters.
std::optional<bool> boolean(std::string_view text);

std::string value_text(const Target& target);  // for people: 1e-5, auto, 500 steps, 10 minutes
std::string yaml_scalar(
    const Target& target);  // as above, quoted where YAML needs it; 1.0e-5, which Python reads as a number too
std::string allowed_text(const Option& option);  // ">= 1", "0 to 0.9", "char_small, gpt2_small", or empty

// `text` between single quotes, cut and with control characters escaped: fit for a one-line message.
std::string in_quotes(std::string_view text);

}  // namespace gpt::config
