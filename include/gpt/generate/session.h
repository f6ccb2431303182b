// A trained model ready to write: what gpt-generate opens, and its two ways of using it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gpt/generate/options.h"
#include "gpt/generate/text_output.h"
#include "gpt/generate/thread_choice.h"
#include "gpt/model/gpt.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt {

struct Session {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<GPT> model;
  at::ScalarType compute_type = at::kFloat;
  std::optional<ThreadChoice> threads;  // where there is something to choose
  std::optional<int32_t> start = {};    // SamplingConfig::start of this model
};

// Loads the checkpoint onto the device and says on the log what it is. Throws gpt::Error.
Session open_session(const GenerateOptions& options);

// Both write texts to `output`, and statistics and notes to the log; both return the exit status.
int write_samples(Session& session, const GenerateOptions& options, const std::string& prompt, TextOutput& output);
int converse(Session& session, const GenerateOptions& options, TextOutput& output);  // a prompt a line, until they end

}  // namespace gpt
