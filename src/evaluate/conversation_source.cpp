#include "gpt/evaluate/conversation_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "gpt/chat/chat_template.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/data/packed_rows.h"
#include "gpt/prepare/load_corpus.h"
#include "gpt/prepare/text_cache.h"

namespace gpt::evaluate {
namespace {

// Conversations in the order of their file, each as far as it fits the window.
struct Conversations {
  data::Corpus corpus;
  std::vector<data::Segment> segments;

  Conversations(const DataConfig& config, const generate::LoadedModel& loaded, int64_t window)
      : corpus(prepare::load_corpus(config, window, loaded.tokenizer->to_json(), loaded.tokenizer->vocab_size(),
                                    loaded.text_format)) {
    const data::PackedRows rows(corpus.train, window, /*packs=*/false, /*seed=*/0);
    for (int64_t row = 0; row < rows.size(); ++row) segments.push_back(rows.row(row)[0]);
    std::ranges::sort(segments, {}, &data::Segment::start);
    if (rows.left_out() > 0) {
      log::warn(fmt::format("{}: {} left out: nothing that counts is within the window of {}", corpus.source,
                            rows.left_out() == 1 ? "1 conversation is"
                                                 : fmt::format("{} conversations are", with_commas(rows.left_out())),
                            plural(window, "token")));
    }
  }
};

class ConversationSource final : public ExampleSource {
 public:
  ConversationSource(std::vector<Conversations> inputs, const tokenizer::Tokenizer& tokenizer)
      : inputs_(std::move(inputs)), text_bytes_(tokenizer.text_bytes()) {
    for (const Conversations& input : inputs_) count_ += std::ssize(input.segments);
  }
  Form form() const override { return Form::answers; }
  double share() const override { return static_cast<double>(given_) / static_cast<double>(count_); }

  std::optional<Example> next() override {
    while (input_ < inputs_.size() && next_ == inputs_[input_].segments.size()) ++input_, next_ = 0;
    if (input_ == inputs_.size()) return std::nullopt;
    return example_of(inputs_[input_].corpus.train, inputs_[input_].segments[next_++]);
  }

 private:
  Example example_of(const data::Tokens& tokens, const data::Segment& segment) {
    Request request{.ids = {}, .scored = segment.learned};
    Example example{.requests = {}, .document = given_++};
    const int64_t end = segment.start + segment.length + 1;
    for (int64_t i = segment.start; i < end; ++i) {
      if (i > segment.start && tokens.is_learned(i)) {
        request.places.push_back(i - segment.start);
        example.bytes += text_bytes_.at(tokens[i]);
      }
      request.ids.push_back(tokens[i]);
    }
    request.is_cut = end < tokens.size() && (tokens.mark(end) & data::TokenMark::kBegins) == 0;
    example.requests.push_back(std::move(request));
    return example;
  }

  const std::vector<Conversations> inputs_;
  const std::vector<int32_t> text_bytes_;
  int64_t count_ = 0, given_ = 0;  // conversations
  size_t input_ = 0, next_ = 0;    // segment of the input
};

}  // namespace

bool hold_conversations(const std::vector<std::string>& inputs, const std::string& text_field) {
  DataConfig config;
  config.text_field = text_field;
  std::optional<std::pair<std::string, bool>> first;
  for (const std::string& input : inputs) {
    const bool are = prepare::holds_conversations(input, config);
    if (!first) first = {input, are};
    if (first->second == are) continue;
    const auto& [chats, texts] = are ? std::pair(input, first->first) : std::pair(first->first, input);
    throw Error(ExitCode::data,
                fmt::format("{} holds conversations, and {} does not: evaluate them one by one", chats, texts));
  }
  return first && first->second;
}

std::unique_ptr<ExampleSource> open_conversations(const std::vector<std::string>& inputs,
                                                  const generate::LoadedModel& loaded,
                                                  const ConversationOptions& options) {
  if (!chat::can_chat(loaded.text_format, *loaded.tokenizer)) {
    throw Error(ExitCode::config,
                fmt::format("{} holds conversations, but the model has no chat template, and its tokenizer lacks "
                            "<|im_start|> and <|im_end|>; name a model that chats",
                            inputs[0]));
  }
  DataConfig config;
  config.text_field = options.text_field;
  config.learn = options.learn;
  config.validation_fraction = 0;
  std::vector<Conversations> all;
  for (const std::string& input : inputs) {
    config.text = input;
    all.emplace_back(config, loaded, options.window);
  }
  return std::make_unique<ConversationSource>(std::move(all), *loaded.tokenizer);
}

}  // namespace gpt::evaluate
