// Requests through the model, in batches.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "gpt/evaluate/example.h"
#include "gpt/model/gpt.h"

namespace gpt::evaluate {

class Scorer {
 public:
  // `compute_type`: of autocast, on a GPU. `batch_size`: requests at once; 0: as many as have 4,096 tokens on a CPU and 32,768 on a GPU.
  Scorer(model::GPT& model, at::ScalarType compute_type, int64_t batch_size);

  // Scores of the requests, in their order, whatever batches they were computed in. The longest come first, so that little is padded; equal
  // requests are computed once, so that they are equally probable. `stop` is asked before each batch: where it says so, nothing is
  // returned. Restores the model's training mode. Throws gpt::Error(numerics) for logits that are not finite.
  std::vector<Score> score(const std::vector<const Request*>& requests, const std::function<bool()>& stop) const;

  const model::GPT& model() const { return model_; }

  // Whether these are enough for batches of requests of about the same length.
  bool is_plenty(int64_t requests, int64_t tokens) const;

 private:
  std::vector<Score> score_batch(std::span<const Request* const> batch) const;
  size_t batch_at(std::span<const Request* const> sorted) const;

  model::GPT& model_;
  at::ScalarType compute_type_;
  int64_t most_requests_, most_tokens_;  // in a batch
};

}  // namespace gpt::evaluate
