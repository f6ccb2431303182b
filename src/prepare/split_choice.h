// Which documents a bin holds out for validation, and what a vocabulary is learned from before that bin is there.
#pragma once

#include <cstdint>
#include <string_view>

#include "chunk.h"
#include "gpt/prepare/prepare_options.h"

namespace gpt::prepare {

// How many documents there must be for a split by documents; with fewer the last tokens are for validation.
int64_t documents_to_split(double validation_fraction);

// A document's side depends on its text and the seed alone, so that no copy of it is on the other side.
bool is_for_validation(uint64_t key, const PrepareOptions& options);

// The text that a run trains on. A vocabulary learned from what is held out, too, has tokens that only occur there, so that a validation
// loss would come out too low: by 8 % with 4,096 tokens of 100 kB.
class TrainingSide {
 public:
  explicit TrainingSide(const PrepareOptions& options) : options_(options) {}

  void count(const Chunk& chunk);  // of a pass over all of the text, which comes first
  // Parts of a second pass, in their order: what of them is trained on.
  std::string_view of(const DocumentPart& part, std::string_view text);

 private:
  bool is_split_by_documents() const;

  const PrepareOptions& options_;
  int64_t documents_ = 0, bytes_ = 0;
  int64_t passed_ = 0;  // bytes, in the second pass
};

}  // namespace gpt::prepare
