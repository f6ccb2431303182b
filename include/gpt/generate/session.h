// A trained model ready to write: what gpt-generate opens, and its two ways of using it.
#pragma once

#include <optional>
#include <string>

#include "gpt/generate/loaded_model.h"
#include "gpt/generate/options.h"
#include "gpt/generate/text_output.h"
#include "gpt/generate/thread_choice.h"

namespace gpt::generate {

struct Session {
  LoadedModel loaded;
  std::optional<ThreadChoice> threads = {};  // where there is something to choose
};

// Loads the model onto the device and says on the log what it is. Throws gpt::Error.
Session open_session(const ModelOptions& options);

// Both write texts to `output`, and statistics and notes to the log; both return the exit status.
int write_samples(Session& session, const GenerateOptions& options, const std::string& prompt, TextOutput& output);
int converse(Session& session, const GenerateOptions& options, TextOutput& output);  // a prompt a line, until they end

}  // namespace gpt::generate
