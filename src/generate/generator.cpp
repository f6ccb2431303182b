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
#include <limits>
#include <optional>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/device/precision.h"
#include "gpt/generate/prompt.h"
#include "gpt/generate/sampler.h"
#include "gpt/generate/text_stream.h"
#include "gpt/ops/sdp_backends.h"
#include "gpt/products/row_product.h"

namespace gpt {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The tokens that the next ones of some texts depend on, and the cache, which holds the first of them. The texts have the same prompt
// and, since each gets a token at a time, the same length.
class Context {
 public:
  Context(const GPT& model, const std::vector<int32_t>& prompt, int64_t texts, at::ScalarType compute_type)
      : model_(model),
        compute_type_(compute_type),
        tokens_(texts, prompt),
        cache_(model.make_cache(1, model.config().block_size, compute_type)) {}

  void append(int64_t text, int32_t id) { tokens_[text].push_back(id); }
  at::Tensor tokens(int64_t text) const {  // (1, length)
    return on_device({tokens_[text].begin(), tokens_[text].end()}, 1);
  }
  int64_t cropped() const { return cropped_; }

  // How many tokens logits() will compute: one, unless a prompt or what is left of a cropped context is not in the cache yet.
  int64_t uncomputed() {
    if (length() > cache_.capacity()) crop();
    return length() - cache_.length;
  }

  at::Tensor logits() {  // (texts, V), after the last token of each
    const int64_t count = uncomputed();
    if (!is_prompt_) return model_.forward_cached(last(texts(), count), cache_);
    const at::Tensor shared = model_.forward_cached(last(1, count), cache_);  // (1, V)
    widen();
    return shared.expand({texts(), -1});
  }

 private:
  int64_t texts() const { return std::ssize(tokens_); }
  int64_t length() const { return std::ssize(tokens_[0]); }

  at::Tensor on_device(const std::vector<int64_t>& ids, int64_t rows) const {
    return at::tensor(ids).view({rows, -1}).to(model_.device());
  }

  at::Tensor last(int64_t rows, int64_t count) const {  // (rows, count), of the first texts
    std::vector<int64_t> ids;
    for (int64_t text = 0; text < rows; ++text) ids.insert(ids.end(), tokens_[text].end() - count, tokens_[text].end());
    return on_device(ids, rows);
  }

  // The prompt has been computed once for all texts.
  void widen() {
    is_prompt_ = false;
    if (texts() == 1) return;
    KvCache wide = model_.make_cache(texts(), cache_.capacity(), compute_type_);
    wide.length = cache_.length;
    for (size_t layer = 0; layer < wide.keys.size(); ++layer) {
      wide.keys[layer].narrow(2, 0, wide.length).copy_(cache_.keys[layer].narrow(2, 0, wide.length));
      wide.values[layer].narrow(2, 0, wide.length).copy_(cache_.values[layer].narrow(2, 0, wide.length));
    }
    cache_ = std::move(wide);
  }

  void crop() {
    const int64_t kept = std::max<int64_t>(1, cache_.capacity() / 2);
    cropped_ += length() - kept;
    for (std::vector<int32_t>& ids : tokens_) ids.erase(ids.begin(), ids.end() - kept);
    cache_.length = 0;
  }

  const GPT& model_;
  const at::ScalarType compute_type_;
  std::vector<std::vector<int32_t>> tokens_;
  KvCache cache_;  // of one text until the prompt is in it
  bool is_prompt_ = true;
  int64_t cropped_ = 0;
};

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
    if (id >= tokenizer.vocab_size() || tokenizer.decode({&id, 1}).empty()) ids.push_back(id);
  }
  if (ids.empty()) return {};
  return at::zeros({vocab_size}, at::kBool).index_fill_(0, at::tensor(ids), true).to(device);
}

// The next id of a text; logits (1, V).
int32_t draw(at::Tensor logits, const Context& context, int64_t text, const SamplingConfig& config,
             const at::Tensor& without_text, at::Generator& generator) {
  if (without_text.defined()) logits = logits.masked_fill(without_text, -std::numeric_limits<double>::infinity());
  if (config.repetition_penalty != 1)
    logits = penalize_repetition(logits, context.tokens(text), config.repetition_penalty);
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
  GenerationResult result = {};
  bool is_done = false;

  void end(const char* reason) { result.stop_reason = reason, is_done = true; }

  // What of the text is now certain.
  std::string take(int32_t token, const Tokenizer& tokenizer) {
    ++result.new_tokens;
    if (token == tokenizer.end_of_text()) return end("end of text"), finish();
    std::string piece = stream.push(tokenizer.decode({&token, 1}));
    if (stream.stopped()) end("stop text"), piece += stream.finish();
    result.text += piece;
    return piece;
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
  Context context(model, tokens, count, compute_type);
  std::vector<Text> texts;
  for (int64_t i = 0; i < count; ++i)
    texts.push_back({make_generator(model.device(), config.seed + static_cast<uint64_t>(i)), TextStream(config.stop)});

  bool goes_on = true;
  const auto show = [&](const Text& text, const std::string& piece) {
    if (&text == texts.data() && !piece.empty() && emit) goes_on = emit(piece) && goes_on;
  };
  const auto draw_each = [&] {
    const at::Tensor logits = context.logits();
    for (int64_t i = 0; i < count; ++i) {
      Text& text = texts[i];
      int32_t token = 0;  // a text that has ended gets any token, so that all stay as long as each other
      if (!text.is_done) {
        token = draw(logits.narrow(0, i, 1), context, i, config, without_text, text.generator);
        if (text.result.new_tokens == 0) text.result.prefill_seconds = seconds_since(start);
        show(text, text.take(token, tokenizer));
        text.result.seconds = seconds_since(start);
      }
      context.append(i, token);
    }
  };
  const auto is_any_left = [&] {
    return std::any_of(texts.begin(), texts.end(), [](const Text& text) { return !text.is_done; });
  };
  for (int64_t step = 0; step < config.max_new_tokens && goes_on && is_any_left(); ++step) {
    if (threads) {
      work_timed(*threads, context.uncomputed() == 1, draw_each);
    } else {
      draw_each();
    }
  }

  std::vector<GenerationResult> results;
  for (Text& text : texts) {
    if (!text.is_done) {
      text.end(goes_on ? "length" : "interrupted");
      if (goes_on) show(text, text.finish());
      text.result.seconds = seconds_since(start);
    }
    text.result.prompt_tokens = std::ssize(tokens);
    text.result.cropped_tokens = context.cropped();
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
