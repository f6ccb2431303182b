// Sampling text from a model with a KV cache. A context longer than block_size keeps its last half, which is prefilled
// again: positions start anew, so nothing in the cache is ever out of place.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/generate/drawn_text.h"
#include "gpt/generate/sampling_config.h"
#include "gpt/generate/thread_choice.h"
#include "gpt/model/gpt.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::device {
struct Precision;
}

namespace gpt::generate {

// The type that a training run generates in: that of its products, but on a CPU that of its weights. Autocast would cast all of them
// for every token, which takes longer than products of 16 bits save.
at::ScalarType generation_type(const device::Precision& precision, at::Device device);

// Streams whole UTF-8 characters to `emit` as they are complete; bytes that are no UTF-8 become U+FFFD. `emit` returns
// false to stop. Draws from its own generator, so training's random stream is untouched; restores the model's training
// mode. `threads`, where given, chooses those of LibTorch for each token, and learns from it; otherwise they stay as they are. Ids
// that the tokenizer has no text for are never drawn. Throws gpt::Error: config for `config`, numerics for logits that are not
// finite, and what encode_prompt() throws.
GenerationResult generate(model::GPT& model, const tokenizer::Tokenizer& tokenizer, std::string_view prompt,
                          const SamplingConfig& config, at::ScalarType compute_type,
                          const std::function<bool(std::string_view)>& emit = {}, ThreadChoice* threads = nullptr);

// `count` texts of one prompt at once, with the seeds config.seed, config.seed + 1 and so on; each is the text that generate() gives for
// its seed. A token of each takes little longer than one alone, because the weights are read once for all. `emit` gets the first text's;
// where it returns false all end.
std::vector<GenerationResult> generate_several(model::GPT& model, const tokenizer::Tokenizer& tokenizer,
                                               std::string_view prompt, const SamplingConfig& config, int64_t count,
                                               at::ScalarType compute_type,
                                               const std::function<bool(std::string_view)>& emit = {},
                                               ThreadChoice* threads = nullptr);
// How many of `wanted` texts are worth generating at once, and have room for their keys and values.
int64_t texts_at_once(const model::GPT& model, int64_t wanted);

}  // namespace gpt::generate
