// A dialogue with a model: what is said, and the cache of what the model has read of it. What was computed once is not computed again, and
// what the model has answered keeps its tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/chat/chat_template.h"
#include "gpt/generate/decoder.h"
#include "gpt/generate/generator.h"
#include "gpt/generate/sampling_config.h"
#include "gpt/generate/session.h"

namespace gpt::generate {

class Conversation {
 public:
  // `session` must outlive it. `sampling`: its ends are those of the template; an answer has no more tokens than the context has left.
  Conversation(Session& session, chat::ChatTemplate chat_template, SamplingConfig sampling);

  // What the model answers, streamed to `emit` as by generate(). Each answer adds 1 to the seed. The oldest turns are dropped, whole, where
  // the context would have no room for an answer otherwise. Where it throws, nothing has been said: gpt::Error, data for words that the
  // template or the tokenizer does not take or that alone are too long, numerics for logits that are not finite.
  GenerationResult answer(const std::string& words, const std::function<bool(std::string_view)>& emit = {});

  void reset();                               // all is forgotten but the system's message
  void set_system(const std::string& words);  // nothing: none
  const chat::Dialogue& dialogue() const { return dialogue_; }
  int64_t dropped_turns() const { return dropped_turns_; }  // by the last answer
  uint64_t seed() const { return sampling_.seed; }          // of the next answer

 private:
  std::vector<int32_t> fitting_tokens(chat::Dialogue& dialogue);
  std::vector<int32_t> write(std::vector<int32_t> prompt, DrawnText& text,
                             const std::function<bool(std::string_view)>& emit);

  Session& session_;
  chat::ChatTemplate template_;
  SamplingConfig sampling_;
  chat::Dialogue dialogue_;
  Decoder decoder_;
  const at::Tensor without_text_;
  std::optional<int64_t> slot_;
  int64_t dropped_turns_ = 0;
};

}  // namespace gpt::generate
