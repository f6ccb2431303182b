// What users of nanoGPT, llm.c, litgpt and Hugging Face's Trainer write out of habit. A name that means exactly one of
// our keys is an alias in that key's row; the names here have no such key, and get an answer instead.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpt::config {

// What to do instead of setting `name`, a key of another program; '-' and '_' are the same, as are capitals and small
// letters. `in_yaml`: it stood in a file, not on the command line.
std::optional<std::string> advice_for(std::string_view name, bool in_yaml);

// The one of `choices` that is meant by `value`: gpt2_small by gpt2, bfloat16 by bf16 or bfloat61.
std::optional<std::string> nearest_value(std::string_view value, const std::vector<std::string>& choices);

}  // namespace gpt::config
