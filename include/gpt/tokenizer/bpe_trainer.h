// Learns a byte-level BPE vocabulary from text, with the merges and ids of Hugging Face tokenizers for the same settings:
// ids are special tokens, the 256 bytes in the order of GPT-2's printable alphabet, then merges; the most frequent pair is
// merged first, among equally frequent ones the one with the smaller left id, then right id. Pieces of more than
// BpeTokenizer::kLongestPiece bytes are cut there, as they are for encoding; Hugging Face's trainer does not cut them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/tokenizer/bpe_model.h"

namespace gpt::tokenizer {

struct BpeTrainingOptions {
  int64_t vocab_size = 0;  // specials, bytes and merges together
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  int64_t min_frequency = 0;  // pairs less frequent than this are not merged
  SplitPattern split = SplitPattern::gpt2;
  int threads = 0;  // 0 = all cores
};

class BpeTrainer {
 public:
  explicit BpeTrainer(
      BpeTrainingOptions options);  // throws gpt::Error(config) for a vocab_size below specials and bytes
  ~BpeTrainer();

  // Counts the pieces of `text`, on all threads; the text is not kept. The end of `text` also ends a piece: pass whole
  // documents, or cut at last_piece_boundary().
  void add(std::string_view text);

  // The vocabulary; smaller than requested if the text runs out of pairs. `progress(merges done, merges requested)` is
  // called now and then; training stops with gpt::Error(interrupted) when it returns false. Releases the counts to free
  // memory: the trainer is then as new.
  BpeModel train(const std::function<bool(int64_t, int64_t)>& progress = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpt::tokenizer
