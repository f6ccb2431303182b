#include "gpt/serve/scores.h"

#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>

#include <algorithm>

#include "gpt/core/error.h"

namespace gpt::serve {
namespace {

constexpr int64_t kRows = 64;  // at a time: all rows of a long prompt would be a copy of all its logits

void score_rows(const at::Tensor& logits, std::span<const int32_t> tokens, int64_t top,
                std::vector<TokenScore>& scores) {
  const at::Tensor logprobs = at::log_softmax(logits.to(at::kFloat), 1);
  const at::Tensor ids =
      at::tensor(std::vector<int64_t>(tokens.begin(), tokens.end())).to(logits.device()).unsqueeze(1);
  const at::Tensor own = logprobs.gather(1, ids).cpu();  // (rows, 1); sync: it is wanted now
  if (!logprobs.isfinite().all().item<bool>())
    throw Error(ExitCode::numerics, "the model's logits are not finite; try float32, or an earlier checkpoint");
  const auto [values, indices] = at::topk(logprobs, std::min(top, logprobs.size(1)), 1);
  const at::Tensor likeliest = values.cpu(), names = indices.cpu();
  for (int64_t row = 0; row < std::ssize(tokens); ++row) {
    TokenScore score{.id = tokens[row], .logprob = own[row].item<float>(), .top = {}};
    for (int64_t i = 0; i < likeliest.size(1); ++i)
      score.top.emplace_back(static_cast<int32_t>(names[row][i].item<int64_t>()), likeliest[row][i].item<float>());
    scores.push_back(std::move(score));
  }
}

}  // namespace

std::vector<TokenScore> score_tokens(const at::Tensor& logits, std::span<const int32_t> tokens, int64_t top) {
  std::vector<TokenScore> scores;
  const int64_t count = std::ssize(tokens);
  for (int64_t first = 0; first < count; first += kRows) {
    const int64_t rows = std::min(kRows, count - first);
    score_rows(logits.narrow(0, first, rows), tokens.subspan(first, rows), top, scores);
  }
  return scores;
}

}  // namespace gpt::serve
