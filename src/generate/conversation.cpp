#include "gpt/generate/conversation.h"

#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/device/precision.h"
#include "gpt/model/evaluation_mode.h"
#include "gpt/ops/sdp_backends.h"

namespace gpt::generate {
namespace {

class AnswerClock {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

Conversation::Conversation(Session& session, chat::ChatTemplate chat_template, SamplingConfig sampling)
    : session_(session),
      template_(std::move(chat_template)),
      sampling_(std::move(sampling)),
      decoder_(*session.loaded.model, 1, session.loaded.compute_type),
      without_text_(ids_without_text(*session.loaded.tokenizer, *session.loaded.model->config().vocab_size,
                                     session.loaded.model->device())) {
  sampling_.ends = template_.ends();
  validate(sampling_);
}

void Conversation::reset() {
  std::erase_if(dialogue_, [](const chat::Message& message) { return message.role != chat::kSystem; });
}

void Conversation::set_system(const std::string& words) {
  std::erase_if(dialogue_, [](const chat::Message& message) { return message.role == chat::kSystem; });
  if (!words.empty()) dialogue_.insert(dialogue_.begin(), {chat::kSystem, words});
}

// The tokens of the dialogue, which loses its oldest turns until an answer has room behind them.
std::vector<int32_t> Conversation::fitting_tokens(chat::Dialogue& dialogue) {
  const int64_t context = session_.loaded.model->config().block_size;
  const int64_t for_answer = std::max<int64_t>(1, std::min(sampling_.max_new_tokens, context / 4));
  for (dropped_turns_ = 0;; ++dropped_turns_) {
    std::vector<int32_t> tokens = template_.encode(dialogue);
    const int64_t size = std::ssize(tokens);
    if (size + for_answer <= context) return tokens;
    if (chat::drop_oldest_turn(dialogue)) continue;
    if (size < context) return tokens;
    throw Error(
        ExitCode::data,
        fmt::format(
            "the message has {} with what the template adds, and the model sees only {} at once (block_size): shorten it",
            plural(size, "token"), context));
  }
}

GenerationResult Conversation::answer(const std::string& words, const std::function<bool(std::string_view)>& emit) {
  const AnswerClock clock;
  chat::Dialogue dialogue = dialogue_;
  dialogue.push_back({chat::kUser, words});
  std::vector<int32_t> prompt = fitting_tokens(dialogue);
  DrawnText text(session_.loaded.model->device(), sampling_.seed++, sampling_.stop, sampling_.ends, /*has_begun=*/true);
  text.result.prompt_tokens = std::ssize(prompt);
  std::vector<int32_t> ids = write(std::move(prompt), text, emit);
  // A stop text is cut off from what was said, and may be from the middle of a token.
  if (text.result.stop_reason == "stop text") ids.clear();
  dialogue.push_back({chat::kAssistant, text.result.text, std::move(ids)});
  dialogue_ = std::move(dialogue);
  text.result.seconds = clock.seconds();
  return std::move(text.result);
}

// Returns what was drawn, without what ended it.
std::vector<int32_t> Conversation::write(std::vector<int32_t> prompt, DrawnText& text,
                                         const std::function<bool(std::string_view)>& emit) {
  const AnswerClock clock;
  model::GPT& model = *session_.loaded.model;
  const c10::InferenceMode inference;
  const model::EvaluationMode evaluation(model);
  const device::Autocast autocast(model.device(), session_.loaded.compute_type);
  const ops::OnlySdpBackends backends(ops::without_cudnn());
  const int64_t most = std::min(sampling_.max_new_tokens, model.config().block_size - std::ssize(prompt));
  slot_ ? decoder_.replace(*slot_, std::move(prompt)) : (void)(slot_ = decoder_.add(std::move(prompt)));
  std::vector<int32_t> drawn;
  bool goes_on = true;
  const auto show = [&](const std::string& piece) {
    if (!piece.empty() && emit) goes_on = emit(piece);
  };
  const auto draw_one = [&] {
    const at::Tensor logits = decoder_.step().logits;
    const int32_t token = draw(logits, decoder_.tokens(*slot_), sampling_, without_text_, text.generator);
    if (text.result.new_tokens == 0) text.result.prefill_seconds = clock.seconds();
    show(text.take(token, *session_.loaded.tokenizer));
    if (text.result.stop_reason != "end of text") drawn.push_back(token);
    if (!text.is_done() && text.result.new_tokens == most) show(text.end_by_length());
    if (!text.is_done()) decoder_.append(*slot_, token);
  };
  if (most == 0) text.end("length");
  while (goes_on && !text.is_done())
    session_.threads ? work_timed(*session_.threads, decoder_.computes_single_tokens(), draw_one) : draw_one();
  if (!text.is_done()) text.finish(), text.end("interrupted");
  text.result.fills_context = text.result.stop_reason == "length" && most < sampling_.max_new_tokens;
  return drawn;
}

}  // namespace gpt::generate
