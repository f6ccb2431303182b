// The answers of conversations, laid out in the model's chat template, and marked and cut as for training.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpt/config/data_config.h"
#include "gpt/evaluate/example.h"
#include "gpt/generate/loaded_model.h"

namespace gpt::evaluate {

struct ConversationOptions {
  std::string text_field = "text";  // what has it is no conversation
  Learn learn = Learn::answers;     // what counts
  int64_t window = 0;               // tokens that the model sees at once
};

// Whether these inputs are conversations. Throws gpt::Error(data) where only some are.
bool hold_conversations(const std::vector<std::string>& inputs, const std::string& text_field);

// Conversations of which nothing counts are left out, which the log says. Throws gpt::Error: data for what cannot be read, config for a
// model that has no chat template.
std::unique_ptr<ExampleSource> open_conversations(const std::vector<std::string>& inputs,
                                                  const generate::LoadedModel& loaded,
                                                  const ConversationOptions& options);

}  // namespace gpt::evaluate
