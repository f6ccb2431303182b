#include "gpt/generate/drawn_text.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/generate/sampler.h"

namespace gpt::generate {
namespace {

at::Generator make_generator(at::Device device, uint64_t seed) {
  at::Generator generator =
      device.is_cpu() ? at::Generator(at::detail::createCPUGenerator())
                      : at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
  generator.set_current_seed(seed);
  return generator;
}

// Whether the text ends here.
bool is_end(int32_t token, const std::vector<int32_t>& ends, const tokenizer::Tokenizer& tokenizer) {
  return ends.empty() ? token == tokenizer.end_of_text() : std::find(ends.begin(), ends.end(), token) != ends.end();
}

}  // namespace

DrawnText::DrawnText(at::Device device, uint64_t seed, std::vector<std::string> stop, std::vector<int32_t> ends,
                     bool has_begun)
    : generator(make_generator(device, seed)), stream(std::move(stop)), ends(std::move(ends)), has_begun(has_begun) {}

std::string DrawnText::piece_of(int32_t token, const tokenizer::Tokenizer& tokenizer) const {
  return is_end(token, ends, tokenizer) ? "" : tokenizer.piece(token, /*begins_text=*/!has_begun);
}

std::string DrawnText::take(int32_t token, const tokenizer::Tokenizer& tokenizer) {
  ++result.new_tokens;
  if (is_end(token, ends, tokenizer)) return ignores_end ? "" : (end("end of text"), finish());
  std::string piece = stream.push(piece_of(token, tokenizer));
  has_begun = true;
  if (stream.stopped()) end("stop text"), piece += stream.finish();
  result.text += piece;
  return piece;
}

std::string DrawnText::end_by_length() {
  end("length");
  return finish();
}

std::string DrawnText::finish() {
  const std::string piece = stream.finish();
  result.text += piece;
  return piece;
}

at::Tensor ids_without_text(const tokenizer::Tokenizer& tokenizer, int64_t vocab_size, at::Device device) {
  std::vector<int64_t> ids;
  for (int32_t id = 0; id < vocab_size; ++id) {
    if (id >= tokenizer.vocab_size() || tokenizer.piece(id, false).empty()) ids.push_back(id);
  }
  if (ids.empty()) return {};
  return at::zeros({vocab_size}, at::kBool).index_fill_(0, at::tensor(ids), true).to(device);
}

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

void for_each_text(int64_t count, const std::function<void(int64_t)>& work) {
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    const c10::InferenceMode inference;  // which each thread has for itself
    for (int64_t text = begin; text < end; ++text) work(text);
  });
}

}  // namespace gpt::generate
