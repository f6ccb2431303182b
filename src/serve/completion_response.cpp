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

std::string random_id(AnswerForm form) {
  std::random_device random;
  return fmt::format("{}-{:08x}{:08x}{:08x}", form == AnswerForm::chat ? "chatcmpl" : "cmpl", random(), random(),
                     random());
}

// `words`: {"text": ...}, {"message": ...} or {"delta": ...}.
ordered_json choice_json(int64_t index, const ordered_json& words, ordered_json logprobs,
                         const std::string& finish_reason) {
  ordered_json choice = {{"index", index}};
  choice.update(words);
  choice["logprobs"] = std::move(logprobs);
  choice["finish_reason"] = finish_reason.empty() ? ordered_json() : ordered_json(finish_reason);
  return choice;
}

ordered_json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

}  // namespace

std::string token_text(const tokenizer::Tokenizer& tokenizer, int32_t id) {
  for (const tokenizer::SpecialToken& special : tokenizer.special_tokens())
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
    const std::string text = text_.push(score.text);
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

ordered_json LogprobsWriter::write_for_chat(const std::vector<TokenScore>& scores) const {
  const auto one = [this](int32_t id, float logprob) {
    const std::string bytes = id < tokenizer_->vocab_size() ? tokenizer_->piece(id, false) : "";
    ordered_json values = ordered_json::array();
    for (const char byte : bytes) values.push_back(static_cast<unsigned char>(byte));
    return ordered_json{{"token", token_text(*tokenizer_, id)}, {"logprob", logprob}, {"bytes", std::move(values)}};
  };
  ordered_json content = ordered_json::array();
  for (const TokenScore& score : scores) {
    ordered_json entry = one(score.id, score.logprob.value_or(0));
    ordered_json top = ordered_json::array();
    for (const auto& [id, logprob] : score.top) top.push_back(one(id, logprob));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

CompletionWriter::CompletionWriter(const tokenizer::Tokenizer& tokenizer, const std::string& model,
                                   int64_t prompt_tokens, int64_t choices, bool has_logprobs,
                                   std::vector<std::string> echo, AnswerForm form)
    : form_(form),
      id_(random_id(form)),
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

ordered_json CompletionWriter::frame(bool is_streamed) const {
  const char* const object = form_ == AnswerForm::text ? "text_completion"
                             : is_streamed             ? "chat.completion.chunk"
                                                       : "chat.completion";
  return {
      {"id", id_}, {"object", object}, {"created", created_}, {"model", model_}, {"choices", ordered_json::array()}};
}

ordered_json CompletionWriter::logprobs(Choice& choice, const std::vector<TokenScore>& scores) const {
  if (!has_logprobs_) return {};
  return form_ == AnswerForm::chat ? choice.logprobs.write_for_chat(scores) : choice.logprobs.write(scores);
}

// The first piece of a chat says who speaks.
ordered_json CompletionWriter::streamed_words(Choice& choice, const std::string& text) const {
  if (form_ == AnswerForm::text) return {{"text", text}};
  ordered_json delta = ordered_json::object();
  if (!std::exchange(choice.has_begun, true)) delta = {{"role", "assistant"}, {"content", text}};
  if (!text.empty()) delta["content"] = text;
  return {{"delta", std::move(delta)}};
}

std::string CompletionWriter::piece(const TextEvent& event, UsageSoFar usage) {
  count(event);
  const std::string text = take_echo(event.choice) + event.text;
  if (text.empty() && event.scores.empty() && event.finish_reason.empty()) return "";
  ordered_json object = frame(/*is_streamed=*/true);
  Choice& choice = choices_[event.choice];
  object["choices"].push_back(
      choice_json(event.choice, streamed_words(choice, text), logprobs(choice, event.scores), event.finish_reason));
  if (usage != UsageSoFar::left_out) object["usage"] = usage == UsageSoFar::told ? usage_json(usage_) : ordered_json();
  return dump(object);
}

std::string CompletionWriter::usage_piece() const {
  ordered_json object = frame(/*is_streamed=*/true);
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
  ordered_json object = frame(/*is_streamed=*/false);
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice choice = choices_[i];
    ordered_json words = {{"text", choice.text}};
    if (form_ == AnswerForm::chat)
      words = {{"message", {{"role", "assistant"}, {"content", choice.text}, {"refusal", nullptr}}}};
    object["choices"].push_back(
        choice_json(static_cast<int64_t>(i), words, logprobs(choice, choice.scores), choice.finish_reason));
  }
  object["usage"] = usage_json(usage_);
  return dump(object);
}

}  // namespace gpt::serve
