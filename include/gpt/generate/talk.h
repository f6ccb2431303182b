// gpt-generate --chat: what a person types is answered, until the input ends.
#pragma once

#include <optional>
#include <string>

#include "gpt/generate/options.h"
#include "gpt/generate/session.h"
#include "gpt/generate/text_output.h"

namespace gpt::generate {

// `words`: one message, of which the answer alone is written; nothing: those of standard input, a line each, and commands, which begin with
// /. Returns the exit status. Throws gpt::Error(config) where the model has no template.
int talk(Session& session, const GenerateOptions& options, const std::optional<std::string>& words, TextOutput& output);

}  // namespace gpt::generate
