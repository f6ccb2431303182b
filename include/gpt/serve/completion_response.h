// What a completion is answered with: one JSON object, or one for each piece of a stream.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "gpt/generate/text_stream.h"
#include "gpt/serve/text_event.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::serve {

// The text of a token: of a special one its name; bytes that are no characters by themselves as in "bytes:\xe2\x80".
std::string token_text(const tokenizer::Tokenizer& tokenizer, int32_t id);

// The logprobs of one choice, piece after piece.
class LogprobsWriter {
 public:
  explicit LogprobsWriter(const tokenizer::Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  // Log probabilities as chats have them: {"content": [{"token", "logprob", "bytes", "top_logprobs"}], "refusal"}.
  nlohmann::ordered_json write_for_chat(const std::vector<TokenScore>& scores) const;

  // {"tokens", "token_logprobs", "top_logprobs", "text_offset"}: lists with an entry for each token. A top logprob names the token itself
  // too, also where it is not among the likeliest. text_offset counts the characters of the choice's text before the token.
  nlohmann::ordered_json write(const std::vector<TokenScore>& scores);

 private:
  const tokenizer::Tokenizer* tokenizer_;
  generate::TextStream text_;
  int64_t characters_ = 0;
};

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0;
};

// What is answered to /v1/completions, and to /v1/chat/completions.
enum class AnswerForm { text, chat };

class CompletionWriter {
 public:
  // `echo`: the texts of the choices' prompts, where these are to precede their texts; otherwise empty.
  CompletionWriter(const tokenizer::Tokenizer& tokenizer, const std::string& model, int64_t prompt_tokens,
                   int64_t choices, bool has_logprobs, std::vector<std::string> echo,
                   AnswerForm form = AnswerForm::text);

  // What a piece of a stream says of usage, of which the last piece may have the whole.
  enum class UsageSoFar { left_out, null, told };

  // The answer to a request that streams: a piece for each event; empty where there is nothing to be said yet.
  std::string piece(const TextEvent& event, UsageSoFar usage = UsageSoFar::left_out);
  std::string usage_piece() const;

  // The answer to one that does not: once all choices have ended.
  void add(const TextEvent& event);
  std::string whole() const;

  bool is_complete() const { return unfinished_ == 0; }
  const Usage& usage() const { return usage_; }

 private:
  struct Choice {
    std::string text;
    std::vector<TokenScore> scores;
    std::string finish_reason;
    LogprobsWriter logprobs;
    bool has_begun = false;  // to be streamed
  };

  void count(const TextEvent& event);
  std::string take_echo(int64_t choice);
  nlohmann::ordered_json frame(bool is_streamed) const;
  nlohmann::ordered_json logprobs(Choice& choice, const std::vector<TokenScore>& scores) const;
  nlohmann::ordered_json streamed_words(Choice& choice, const std::string& text) const;

  const AnswerForm form_;
  const std::string id_, model_;
  const int64_t created_;
  const bool has_logprobs_;
  std::vector<std::string> echo_;
  std::vector<Choice> choices_;
  int64_t unfinished_;
  Usage usage_;
};

}  // namespace gpt::serve
