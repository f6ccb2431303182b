// How probable tokens are that are there already: to validate, and to evaluate.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "gpt/device/device.h"
#include "gpt/model/gpt.h"
#include "gpt/ops/classifier.h"
#include "gpt/ops/part.h"
#include "transformer.h"

namespace gpt::model {

at::Tensor GPT::token_losses(const at::Tensor& ids, const at::Tensor& targets, const at::Tensor& starts) const {
  TORCH_CHECK(ids.sizes() == targets.sizes(), "GPT: targets must have the shape of ids, got ", targets.sizes());
  const at::NoGradGuard no_grad;
  const at::Tensor x = through_stages(ids, starts);
  if (!part_.is_last_stage()) return at::zeros(targets.sizes(), x.options().dtype(at::kFloat));
  const ops::InPart part(ops::part::kHead);
  return operators_->classifier_losses(x, transformer_->lm_head, targets, {.vocabulary = *config_.vocab_size})
      .view_as(targets);
}

TokenScores GPT::score(const at::Tensor& ids, const at::Tensor& places, const at::Tensor& targets) const {
  TORCH_CHECK(places.dim() == 1 && places.sizes() == targets.sizes() && places.numel() > 0,
              "GPT: one place is needed for each of the targets ", targets.sizes(), ", got ", places.sizes());
  const at::NoGradGuard no_grad;
  const at::Tensor x = through_stages(ids);
  const auto of_all = [&](const at::Tensor& scores) {  // (2, N)
    const at::Tensor both = shared(scores, {2, places.size(0)});
    return TokenScores{both[0], both[1].to(at::kBool)};
  };
  if (!part_.is_last_stage()) return of_all({});
  const at::Tensor rows = x.flatten(0, 1).index_select(0, places);  // (N, C)
  const ops::InPart part(ops::part::kHead);
  const auto [Vp, C] = std::pair(transformer_->lm_head.value().size(0), rows.size(1));
  const int64_t most =
      ops::classifier_chunk_rows(rows.size(0), {Vp, C}, at::kFloat, 0, device::multiprocessors_of(device()));
  std::vector<at::Tensor> scores, greedy;
  for (int64_t begin = 0; begin < rows.size(0); begin += most) {
    const int64_t count = std::min(most, rows.size(0) - begin);
    const at::Tensor chunk = logits(rows.narrow(0, begin, count)).to(at::kFloat);  // (count, V)
    const at::Tensor target = targets.narrow(0, begin, count);
    const at::Tensor of_target = chunk.gather(1, target.unsqueeze(1)).squeeze(1);
    scores.push_back(of_target - chunk.logsumexp(1));
    greedy.push_back(chunk.argmax(1) == target);
  }
  const TokenScores found{at::cat(scores), at::cat(greedy)};
  return link_ ? of_all(at::stack({found.log_probabilities, found.is_greedy.to(at::kFloat)})) : found;
}

}  // namespace gpt::model
