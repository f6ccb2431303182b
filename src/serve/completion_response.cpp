#include "gpt/serve/completion_response.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "gpt/core/utf8.h"

namespace gpt::serve {
namespace {

using nlohmann::ordered_json;

std::string dump(const ordered_json& object) {
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string random_id() {
  std::random_device random;
  return fmt::format("cmpl-{:08x}{:08x}{:08x}", random(), random(), random());
}

ordered_json choice_json(int64_t index, const std::string& text, ordered_json logprobs,
                         const std::string& finish_reason) {
  return {{"index", index},
          {"text", text},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", finish_reason.empty() ? ordered_json() : ordered_json(finish_reason)}};
}

ordered_json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

}  // namespace

std::string token_text(const Tokenizer& tokenizer, int32_t id) {
  for (const SpecialToken& special : tokenizer.special_tokens())
    if (special.id == id) return special.text;
  const std::string bytes = id < tokenizer.vocab_size() ? tokenizer.piece(id, false) : "";
  if (utf8::is_valid(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char byte : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return text;
}

ordered_json LogprobsWriter::write(const std::vector<TokenScore>& scores) {
  ordered_json tokens = ordered_json::array(), logprobs = tokens, tops = tokens, offsets = tokens;
  for (const TokenScore& score : scores) {
    tokens.push_back(token_text(*tokenizer_, score.id));
    offsets.push_back(characters_);
    const std::string text = text_.push(score.id < tokenizer_->vocab_size() ? tokenizer_->piece(score.id, false) : "");
    characters_ += std::count_if(text.begin(), text.end(), utf8::begins_character);
    if (!score.logprob) {
      logprobs.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    logprobs.push_back(*score.logprob);
    ordered_json top = ordered_json::object();
    for (const auto& [id, logprob] : score.top)
      top.emplace(token_text(*tokenizer_, id), logprob);  // the likelier of two that read alike
    top.emplace(tokens.back().get<std::string>(), *score.logprob);
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

CompletionWriter::CompletionWriter(const Tokenizer& tokenizer, const std::string& model, int64_t prompt_tokens,
                                   int64_t choices, bool has_logprobs, std::vector<std::string> echo)
    : id_(random_id()),
      model_(model),
      created_(std::time(nullptr)),
      has_logprobs_(has_logprobs),
      echo_(std::move(echo)),
      choices_(choices, Choice{{}, {}, {}, LogprobsWriter(tokenizer)}),
      unfinished_(choices),
      usage_{.prompt_tokens = prompt_tokens, .completion_tokens = 0} {}

void CompletionWriter::count(const TextEvent& event) {
  usage_.completion_tokens += event.new_tokens;
  if (!event.finish_reason.empty()) --unfinished_;
}

// Before the first text of a choice.
std::string CompletionWriter::take_echo(int64_t choice) {
  return echo_.empty() ? "" : std::exchange(echo_[choice], "");
}

ordered_json CompletionWriter::frame() const {
  return {{"id", id_},
          {"object", "text_completion"},
          {"created", created_},
          {"model", model_},
          {"choices", ordered_json::array()}};
}

std::string CompletionWriter::piece(const TextEvent& event, UsageSoFar usage) {
  count(event);
  const std::string text = take_echo(event.choice) + event.text;
  if (text.empty() && event.scores.empty() && event.finish_reason.empty()) return "";
  ordered_json object = frame();
  ordered_json logprobs;
  if (has_logprobs_) logprobs = choices_[event.choice].logprobs.write(event.scores);
  object["choices"].push_back(choice_json(event.choice, text, std::move(logprobs), event.finish_reason));
  if (usage != UsageSoFar::left_out) object["usage"] = usage == UsageSoFar::told ? usage_json(usage_) : ordered_json();
  return dump(object);
}

std::string CompletionWriter::usage_piece() const {
  ordered_json object = frame();
  object["usage"] = usage_json(usage_);
  return dump(object);
}

void CompletionWriter::add(const TextEvent& event) {
  count(event);
  Choice& choice = choices_[event.choice];
  choice.text += take_echo(event.choice) + event.text;
  choice.scores.insert(choice.scores.end(), event.scores.begin(), event.scores.end());
  if (!event.finish_reason.empty()) choice.finish_reason = event.finish_reason;
}

std::string CompletionWriter::whole() const {
  ordered_json object = frame();
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    ordered_json logprobs;
    if (has_logprobs_) logprobs = LogprobsWriter(choice.logprobs).write(choice.scores);
    object["choices"].push_back(
        choice_json(static_cast<int64_t>(i), choice.text, std::move(logprobs), choice.finish_reason));
  }
  object["usage"] = usage_json(usage_);
  return dump(object);
}

}  // namespace gpt::serve
