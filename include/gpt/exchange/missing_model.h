// Why a path that somebody gave for a model leads to none: names of models that are on Hugging Face's hub, words that mean something to other
// programs, and an export that was not finished.
#pragma once

#include <string>

namespace gpt::exchange {

// An export that was ended before config.json, which makes the folder a model, had its name.
bool is_unfinished_export(const std::string& folder);

// What to do, for a path where nothing can be read. Empty where a plain "no such file" says all there is to say.
std::string why_missing(const std::string& path);

}  // namespace gpt::exchange
