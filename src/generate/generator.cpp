#include "gpt/generate/generator.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "gpt/core/running_clock.h"
#include "gpt/device/precision.h"
#include "gpt/generate/decoder.h"
#include "gpt/generate/drawn_text.h"
#include "gpt/generate/prompt.h"
#include "gpt/model/evaluation_mode.h"
#include "gpt/ops/sdp_backends.h"
#include "gpt/products/row_product.h"

namespace gpt::generate {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

at::ScalarType generation_type(const device::Precision& precision, at::Device device) {
  return device.is_cpu() ? precision.weight_type() : precision.compute_type();
}

int64_t texts_at_once(const model::GPT& model, int64_t wanted) {
  constexpr double kMostCacheBytes = 2e9;
  const ModelConfig& config = model.config();
  const auto cache =
      static_cast<double>(2 * config.n_layer * config.kv_heads() * config.head_dim() * config.block_size) *
      sizeof(float);
  return std::clamp<int64_t>(static_cast<int64_t>(kMostCacheBytes / cache), 1, std::min(wanted, ops::kMostFewRows));
}

std::vector<GenerationResult> generate_several(model::GPT& model, const tokenizer::Tokenizer& tokenizer,
                                               std::string_view prompt, const SamplingConfig& config, int64_t count,
                                               at::ScalarType compute_type,
                                               const std::function<bool(std::string_view)>& emit,
                                               ThreadChoice* threads) {
  validate(config);
  const auto start = Clock::now();
  const c10::InferenceMode inference;
  const model::EvaluationMode evaluation(model);
  const device::Autocast autocast(model.device(), compute_type);
  const ops::OnlySdpBackends backends(ops::without_cudnn());
  const std::vector<int32_t> tokens = encode_prompt(tokenizer, prompt, "prompt", config.start);
  const at::Tensor without_text = ids_without_text(tokenizer, *model.config().vocab_size, model.device());
  const int64_t most_new = std::min(config.max_new_tokens, model.config().block_size);
  Decoder decoder(model, count, compute_type, std::ssize(tokens) + most_new);
  std::vector<DrawnText> texts;
  for (int64_t i = 0; i < count; ++i)
    texts.emplace_back(model.device(), config.seed + static_cast<uint64_t>(i), config.stop, config.ends,
                       !prompt.empty());

  bool goes_on = true;
  const auto show = [&](const DrawnText& text, const std::string& piece) {
    if (&text == texts.data() && !piece.empty() && emit) goes_on = emit(piece) && goes_on;
  };
  const auto take = [&](DrawnText& text, int32_t token) {
    if (text.result.new_tokens == 0) text.result.prefill_seconds = seconds_since(start);
    show(text, text.take(token, tokenizer));
    if (!text.is_done() && text.result.new_tokens == config.max_new_tokens) show(text, text.end_by_length());
    text.result.seconds = seconds_since(start);
    text.result.cropped_tokens = decoder.cropped(text.slot);
    text.is_done() ? decoder.remove(text.slot) : decoder.append(text.slot, token);
  };
  // A token for each of these texts, with the logits of its row.
  const auto draw_all = [&](const std::vector<DrawnText*>& growing, const at::Tensor& logits) {
    std::vector<int32_t> drawn(growing.size());
    for_each_text(std::ssize(growing), [&](int64_t i) {
      DrawnText& text = *growing[i];
      drawn[i] = draw(logits.narrow(0, i, 1), decoder.tokens(text.slot), config, without_text, text.generator);
    });
    for (size_t i = 0; i < growing.size(); ++i) take(*growing[i], drawn[i]);
  };
  const auto begin_all = [&] {  // the prompt is computed once
    const at::Tensor logits = decoder.step().logits;
    for (DrawnText& text : std::span(texts).subspan(1)) text.slot = *decoder.copy(texts[0].slot);
    std::vector<DrawnText*> all;
    for (DrawnText& text : texts) all.push_back(&text);
    draw_all(all, logits.expand({count, -1}));
  };
  const auto draw_each = [&] {
    const auto [slots, logits] = decoder.step();
    std::vector<DrawnText*> growing;
    for (const int64_t slot : slots) {
      const auto is_there = [slot](const DrawnText& text) { return text.slot == slot && !text.is_done(); };
      growing.push_back(&*std::find_if(texts.begin(), texts.end(), is_there));
    }
    draw_all(growing, logits);
  };
  const auto in_threads = [&](const std::function<void()>& work) {
    threads ? work_timed(*threads, decoder.computes_single_tokens(), work) : work();
  };
  const auto is_any_left = [&] { return !std::all_of(texts.begin(), texts.end(), std::mem_fn(&DrawnText::is_done)); };
  if (config.max_new_tokens > 0) {
    texts[0].slot = *decoder.add(tokens);
    in_threads(begin_all);
    while (goes_on && is_any_left()) in_threads(draw_each);
  }

  std::vector<GenerationResult> results;
  for (DrawnText& text : texts) {
    if (!text.is_done()) {
      goes_on ? (void)text.end_by_length() : text.end("interrupted");
      text.result.seconds = seconds_since(start);
    }
    text.result.prompt_tokens = std::ssize(tokens);
    results.push_back(std::move(text.result));
  }
  return results;
}

GenerationResult generate(model::GPT& model, const tokenizer::Tokenizer& tokenizer, std::string_view prompt,
                          const SamplingConfig& config, at::ScalarType compute_type,
                          const std::function<bool(std::string_view)>& emit, ThreadChoice* threads) {
  return generate_several(model, tokenizer, prompt, config, 1, compute_type, emit, threads)[0];
}

}  // namespace gpt::generate
