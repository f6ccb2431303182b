// A conversation as a model learns it: the ids that it is talked to with, and which of them it learns to say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/chat/chat_template.h"
#include "gpt/config/data_config.h"

namespace gpt::chat {

struct LearnedConversation {
  std::vector<int32_t> ids;
  std::vector<bool> learned;      // of each id. Nothing is before the first one, from which it could be told.
  std::vector<bool> ends;         // an answer ends with it
  int64_t turns = 0;              // messages but those of the system
  int64_t answers = 0;            // that are learned
  bool last_answer_only = false;  // although all were asked for: the template rewrites earlier turns
};

// Immutable, and safe to use from several threads at once.
class ConversationEncoder {
 public:
  ConversationEncoder(ChatTemplate chat, const tokenizer::Tokenizer& tokenizer, Learn learn);

  // Without ids where there is no answer to be learned. What follows the last answer is left out, unless all is learned. An answer is what
  // the template says is generated; where it does not say so, what follows the question that it answers, up to the token that ends it.
  // Throws as ChatTemplate::render() does, and what Tokenizer::encode() throws.
  LearnedConversation encode(const Dialogue& dialogue) const;

 private:
  struct Answers {
    std::vector<jinja::Span> spans;  // of the rendered text
    bool are_generated = false;      // as the template says, to the byte
    bool last_only = false;
  };
  struct Agreement {
    size_t bytes;
    bool is_all;  // of the beginning, but for white space at its end
  };
  std::optional<Agreement> agreement(const MarkedWords& words, const Dialogue& dialogue, size_t count, bool asks,
                                     const std::string& whole) const;
  std::optional<jinja::Span> span_of(const MarkedWords& words, const Dialogue& dialogue, size_t answer,
                                     const std::string& whole) const;
  Answers find_answers(const MarkedWords& words, const Dialogue& dialogue, const jinja::Rendered& whole) const;
  void learn_answer(size_t begin, size_t end, bool is_generated, LearnedConversation& conversation) const;
  bool is_end(int32_t id) const;

  ChatTemplate chat_;
  const tokenizer::Tokenizer& tokenizer_;
  const Learn learn_;
};

}  // namespace gpt::chat
