// One text that is being drawn, whoever computes its logits: its own random numbers, what of it is certain, and why it ended.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpt/generate/sampling_config.h"
#include "gpt/generate/text_stream.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::generate {

struct GenerationResult {
  std::string text;            // without the prompt; always valid UTF-8
  int64_t prompt_tokens = 0;   // tokens of the whole prompt, before any cropping
  int64_t new_tokens = 0;      // drawn, those of a stop text and an end of text included
  int64_t cropped_tokens = 0;  // tokens that fell out of the context, prompt and generated
  double seconds = 0;          // prefill and decoding
  double prefill_seconds = 0;  // up to the first token
  std::string stop_reason;     // "length", "stop text", "end of text", "interrupted"
  bool fills_context = false;  // an answer of a chat whose length is what the model still had room for
};

struct DrawnText {
  // `ends`: as in SamplingConfig. `has_begun`: with a prompt, so that a token which is drawn does not begin the text.
  DrawnText(at::Device device, uint64_t seed, std::vector<std::string> stop, std::vector<int32_t> ends, bool has_begun);

  at::Generator generator;
  TextStream stream;
  std::vector<int32_t> ends;
  int64_t slot = -1;  // of the decoder, until it has ended
  bool has_begun;
  bool ignores_end = false;  // an end of text is a token without a text
  GenerationResult result = {};

  bool is_done() const { return !result.stop_reason.empty(); }
  void end(const char* reason) { result.stop_reason = reason; }

  // The bytes that it would add to the text.
  std::string piece_of(int32_t token, const tokenizer::Tokenizer& tokenizer) const;

  // All return what of the text is now certain.
  std::string take(int32_t token, const tokenizer::Tokenizer& tokenizer);
  std::string end_by_length();
  std::string finish();
};

// Which ids may not be drawn because they stand for nothing: those beyond the tokenizer's vocabulary and gaps in its numbering.
// (V) bool on the device; undefined where there are none.
at::Tensor ids_without_text(const tokenizer::Tokenizer& tokenizer, int64_t vocab_size, at::Device device);

// The next id of a text with this context; logits (1, V). Throws gpt::Error(numerics) where they are not finite.
int32_t draw(at::Tensor logits, const std::vector<int32_t>& context, const SamplingConfig& config,
             const at::Tensor& without_text, at::Generator& generator);

// Calls work(0) to work(count - 1), such as a draw for each of `count` texts, divided among LibTorch's threads. In inference mode.
void for_each_text(int64_t count, const std::function<void(int64_t)>& work);

}  // namespace gpt::generate
