#include "gpt/generate/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/device/precision.h"
#include "gpt/generate/decoder.h"
#include "gpt/generate/prompt.h"
#include "gpt/generate/sampler.h"
#include "gpt/generate/text_stream.h"
#include "gpt/ops/sdp_backends.h"
#include "gpt/products/row_product.h"

namespace gpt {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

at::Generator make_generator(at::Device device, uint64_t seed) {
  at::Generator generator =
      device.is_cpu() ? at::Generator(at::detail::createCPUGenerator())
                      : at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
  generator.set_current_seed(seed);
  return generator;
}

// Which ids may not be drawn because they stand for nothing: those beyond the tokenizer's vocabulary and gaps in its numbering.
// (V) bool; undefined where there are none.
at::Tensor ids_without_text(const Tokenizer& tokenizer, int64_t vocab_size, at::Device device) {
  std::vector<int64_t> ids;
  for (int32_t id = 0; id < vocab_size; ++id) {
    if (id >= tokenizer.vocab_size() || tokenizer.piece(id, false).empty()) ids.push_back(id);
  }
  if (ids.empty()) return {};
  return at::zeros({vocab_size}, at::kBool).index_fill_(0, at::tensor(ids), true).to(device);
}

// The next id of a text with this context; logits (1, V).
int32_t draw(at::Tensor logits, const std::vector<int32_t>& context, const SamplingConfig& config,
             const at::Tensor& without_text, at::Generator& generator) {
  if (without_text.defined()) logits = logits.masked_fill(without_text, -std::numeric_limits<double>::infinity());
  if (config.repetition_penalty != 1) {
    const at::Tensor ids = at::tensor(std::vector<int64_t>(context.begin(), context.end())).unsqueeze(0);
    logits = penalize_repetition(logits, ids.to(logits.device()), config.repetition_penalty);
  }
  const int64_t id = sample(logits, config, generator).item<int64_t>();  // sync: its text is wanted now
  if (id >= 0) return static_cast<int32_t>(id);
  throw Error(ExitCode::numerics,
              "generation: the model's logits are not finite; try float32, or an earlier checkpoint");
}

// Computes a token of each text with as many threads as `choice` says. All threads share the many rows of a prompt well.
void work_timed(ThreadChoice& choice, bool is_alone, const std::function<void()>& work) {
  const int64_t threads = is_alone ? choice.threads() : choice.most();
  if (threads != at::get_num_threads()) at::set_num_threads(static_cast<int>(threads));
  const auto start = Clock::now();
  work();
  if (is_alone) choice.took(seconds_since(start));
}

// One of the texts that are generated together.
struct Text {
  at::Generator generator;
  TextStream stream;
  int64_t slot = -1;  // of the decoder, until it has ended
  bool has_begun = false;  // with the prompt, or with a token that was drawn
  GenerationResult result = {};

  bool is_done() const { return !result.stop_reason.empty(); }
  void end(const char* reason) { result.stop_reason = reason; }

  // What of the text is now certain.
  std::string take(int32_t token, const Tokenizer& tokenizer) {
    ++result.new_tokens;
    if (token == tokenizer.end_of_text()) return end("end of text"), finish();
    std::string piece = stream.push(tokenizer.piece(token, /*begins_text=*/!std::exchange(has_begun, true)));
    if (stream.stopped()) end("stop text"), piece += stream.finish();
    result.text += piece;
    return piece;
  }

  std::string end_by_length() {
    end("length");
    return finish();
  }

  std::string finish() {
    const std::string piece = stream.finish();
    result.text += piece;
    return piece;
  }
};

}  // namespace

at::ScalarType generation_type(const Precision& precision, at::Device device) {
  return device.is_cpu() ? precision.weight_type() : precision.compute_type();
}

int64_t texts_at_once(const GPT& model, int64_t wanted) {
  constexpr double kMostCacheBytes = 2e9;
  const ModelConfig& config = model.config();
  const auto cache =
      static_cast<double>(2 * config.n_layer * config.kv_heads() * config.head_dim() * config.block_size) *
      sizeof(float);
  return std::clamp<int64_t>(static_cast<int64_t>(kMostCacheBytes / cache), 1, std::min(wanted, ops::kMostFewRows));
}

std::vector<GenerationResult> generate_several(GPT& model, const Tokenizer& tokenizer, std::string_view prompt,
                                               const SamplingConfig& config, int64_t count, at::ScalarType compute_type,
                                               const std::function<bool(std::string_view)>& emit,
                                               ThreadChoice* threads) {
  validate(config);
  const auto start = Clock::now();
  const c10::InferenceMode inference;
  const EvaluationMode evaluation(model);
  const Autocast autocast(model.device(), compute_type);
  const ops::OnlySdpBackends backends(ops::without_cudnn());
  const std::vector<int32_t> tokens = encode_prompt(tokenizer, prompt, "prompt", config.start);
  const at::Tensor without_text = ids_without_text(tokenizer, *model.config().vocab_size, model.device());
  Decoder decoder(model, count, compute_type);
  std::vector<Text> texts;
  for (int64_t i = 0; i < count; ++i) {
    texts.push_back({.generator = make_generator(model.device(), config.seed + static_cast<uint64_t>(i)),
                     .stream = TextStream(config.stop),
                     .has_begun = !prompt.empty()});
  }

  bool goes_on = true;
  const auto show = [&](const Text& text, const std::string& piece) {
    if (&text == texts.data() && !piece.empty() && emit) goes_on = emit(piece) && goes_on;
  };
  const auto take = [&](Text& text, const at::Tensor& logits) {
    const int32_t token = draw(logits, decoder.tokens(text.slot), config, without_text, text.generator);
    if (text.result.new_tokens == 0) text.result.prefill_seconds = seconds_since(start);
    show(text, text.take(token, tokenizer));
    if (!text.is_done() && text.result.new_tokens == config.max_new_tokens) show(text, text.end_by_length());
    text.result.seconds = seconds_since(start);
    text.result.cropped_tokens = decoder.cropped(text.slot);
    text.is_done() ? decoder.remove(text.slot) : decoder.append(text.slot, token);
  };
  const auto begin_all = [&] {  // the prompt is computed once
    const at::Tensor logits = decoder.step().logits;
    for (Text& text : std::span(texts).subspan(1)) text.slot = *decoder.copy(texts[0].slot);
    for (Text& text : texts) take(text, logits);
  };
  const auto draw_each = [&] {
    const auto [slots, logits] = decoder.step();
    for (int64_t row = 0; row < std::ssize(slots); ++row) {
      const auto is_there = [slot = slots[row]](const Text& text) { return text.slot == slot && !text.is_done(); };
      take(*std::find_if(texts.begin(), texts.end(), is_there), logits.narrow(0, row, 1));
    }
  };
  const auto in_threads = [&](const std::function<void()>& work) {
    threads ? work_timed(*threads, decoder.computes_single_tokens(), work) : work();
  };
  const auto is_any_left = [&] { return !std::all_of(texts.begin(), texts.end(), std::mem_fn(&Text::is_done)); };
  if (config.max_new_tokens > 0) {
    texts[0].slot = *decoder.add(tokens);
    in_threads(begin_all);
    while (goes_on && is_any_left()) in_threads(draw_each);
  }

  std::vector<GenerationResult> results;
  for (Text& text : texts) {
    if (!text.is_done()) {
      goes_on ? (void)text.end_by_length() : text.end("interrupted");
      text.result.seconds = seconds_since(start);
    }
    text.result.prompt_tokens = std::ssize(tokens);
    results.push_back(std::move(text.result));
  }
  return results;
}

GenerationResult generate(GPT& model, const Tokenizer& tokenizer, std::string_view prompt, const SamplingConfig& config,
                          at::ScalarType compute_type, const std::function<bool(std::string_view)>& emit,
                          ThreadChoice* threads) {
  return generate_several(model, tokenizer, prompt, config, 1, compute_type, emit, threads)[0];
}

}  // namespace gpt
