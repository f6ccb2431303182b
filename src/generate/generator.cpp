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

#include "gpt/core/error.h"
#include "gpt/device/precision.h"
#include "gpt/generate/prompt.h"
#include "gpt/generate/sampler.h"
#include "gpt/generate/text_stream.h"
#include "gpt/ops/sdp_backends.h"

namespace gpt {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The tokens that the next one depends on, and the cache, which holds the first of them.
class Context {
 public:
  Context(const GPT& model, std::vector<int32_t> prompt, at::ScalarType compute_type)
      : model_(model),
        tokens_(std::move(prompt)),
        cache_(model.make_cache(1, model.config().block_size, compute_type)) {}

  void append(int32_t id) { tokens_.push_back(id); }
  at::Tensor tokens() const { return on_device({tokens_.begin(), tokens_.end()}); }  // (1, T)
  int64_t cropped() const { return cropped_; }

  // How many tokens logits() will compute: one, unless a prompt or what is left of a cropped context is not in the cache yet.
  int64_t uncomputed() {
    if (static_cast<int64_t>(tokens_.size()) > cache_.capacity()) crop();
    return static_cast<int64_t>(tokens_.size()) - cache_.length;
  }

  at::Tensor logits() {  // (1, V), after the last token
    return model_.forward_cached(on_device({tokens_.end() - uncomputed(), tokens_.end()}), cache_);
  }

 private:
  at::Tensor on_device(const std::vector<int64_t>& ids) const {
    return at::tensor(ids).unsqueeze(0).to(model_.device());
  }

  void crop() {
    const size_t kept = std::max<int64_t>(1, cache_.capacity() / 2);
    cropped_ += tokens_.size() - kept;
    tokens_.erase(tokens_.begin(), tokens_.end() - kept);
    cache_.length = 0;
  }

  const GPT& model_;
  std::vector<int32_t> tokens_;
  KvCache cache_;
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

int32_t draw(Context& context, const SamplingConfig& config, const at::Tensor& without_text, at::Generator& generator) {
  at::Tensor logits = context.logits();
  if (without_text.defined()) logits = logits.masked_fill(without_text, -std::numeric_limits<double>::infinity());
  if (config.repetition_penalty != 1) {
    logits = penalize_repetition(logits, context.tokens(), config.repetition_penalty);
  }
  const int64_t id = sample(logits, config, generator).item<int64_t>();  // sync: its text is wanted now
  if (id >= 0) return static_cast<int32_t>(id);
  throw Error(ExitCode::numerics,
              "generation: the model's logits are not finite; try float32, or an earlier checkpoint");
}

// Computes a token with as many threads as `choice` says. All threads share the many rows of a prompt well.
int32_t draw_timed(ThreadChoice& choice, bool is_alone, const std::function<int32_t()>& draw) {
  const int64_t threads = is_alone ? choice.threads() : choice.most();
  if (threads != at::get_num_threads()) at::set_num_threads(static_cast<int>(threads));
  const auto start = Clock::now();
  const int32_t token = draw();
  if (is_alone) choice.took(seconds_since(start));
  return token;
}

}  // namespace

at::ScalarType generation_type(const Precision& precision, at::Device device) {
  return device.is_cpu() ? precision.weight_type() : precision.compute_type();
}

GenerationResult generate(GPT& model, const Tokenizer& tokenizer, std::string_view prompt, const SamplingConfig& config,
                          at::ScalarType compute_type, const std::function<bool(std::string_view)>& emit,
                          ThreadChoice* threads) {
  validate(config);
  const auto start = Clock::now();
  const c10::InferenceMode inference;
  const EvaluationMode evaluation(model);
  const Autocast autocast(model.device(), compute_type);
  const ops::OnlySdpBackends backends(ops::without_cudnn());
  at::Generator generator = make_generator(model.device(), config.seed);
  std::vector<int32_t> tokens = encode_prompt(tokenizer, prompt, "prompt", config.start);

  GenerationResult result;
  result.prompt_tokens = tokens.size();
  result.stop_reason = "length";
  Context context(model, std::move(tokens), compute_type);
  const at::Tensor without_text = ids_without_text(tokenizer, *model.config().vocab_size, model.device());
  TextStream stream(config.stop);
  const auto show = [&](const std::string& piece) {
    result.text += piece;
    return piece.empty() || !emit || emit(piece);
  };
  const auto next = [&] { return draw(context, config, without_text, generator); };
  while (result.new_tokens < config.max_new_tokens) {
    const int32_t token = threads ? draw_timed(*threads, context.uncomputed() == 1, next) : next();
    if (++result.new_tokens == 1) result.prefill_seconds = seconds_since(start);
    if (token == tokenizer.end_of_text()) {
      result.stop_reason = "end of text";
      break;
    }
    context.append(token);
    const bool go_on = show(stream.push(tokenizer.decode({&token, 1})));
    if (stream.stopped() || !go_on) {
      result.stop_reason = stream.stopped() ? "stop text" : "interrupted";
      break;
    }
  }
  if (result.stop_reason != "interrupted") show(stream.finish());
  result.cropped_tokens = context.cropped();
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace gpt
