#include "gpt/evaluate/scorer.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "gpt/core/error.h"
#include "gpt/device/precision.h"
#include "gpt/model/evaluation_mode.h"
#include "gpt/ops/sdp_backends.h"

namespace gpt::evaluate {
namespace {

constexpr int64_t kBatchTokensOfCpu = 4096, kBatchTokensOfGpu = 32768;
constexpr int64_t kBatchesAtOnce = 16;  // what is sorted by length: more would be lost when the program is stopped

int64_t inputs_of(const Request& request) { return std::ssize(request.ids) - 1; }

bool is_longer(const Request* a, const Request* b) {
  if (a->ids.size() != b->ids.size()) return a->ids.size() > b->ids.size();
  return std::tie(a->scored, a->ids, a->places) < std::tie(b->scored, b->ids, b->places);
}

bool is_same(const Request& a, const Request& b) {
  return a.scored == b.scored && a.ids == b.ids && a.places == b.places;
}

// A batch as the model takes it.
struct Padded {
  at::Tensor ids;              // (B, T) int64, padded on the right, which no token before it sees
  at::Tensor places, targets;  // (N) int64, request after request
};

Padded padded(std::span<const Request* const> batch) {
  const auto B = std::ssize(batch);
  const int64_t T = inputs_of(**std::max_element(batch.begin(), batch.end(), [](const Request* a, const Request* b) {
    return a->ids.size() < b->ids.size();
  }));
  at::Tensor ids = at::zeros({B, T}, at::kLong);
  std::vector<int64_t> places, targets;
  for (int64_t b = 0; b < B; ++b) {
    const Request& request = *batch[b];
    const int64_t inputs = inputs_of(request);
    std::copy_n(request.ids.begin(), inputs, ids.mutable_data_ptr<int64_t>() + b * T);
    for (int64_t i = 0; i < request.scored; ++i) {
      const int64_t place = request.places.empty() ? inputs - request.scored + 1 + i : request.places[i];
      places.push_back(b * T + place - 1);
      targets.push_back(request.ids[place]);
    }
  }
  return {ids, at::tensor(places), at::tensor(targets)};
}

}  // namespace

Scorer::Scorer(model::GPT& model, at::ScalarType compute_type, int64_t batch_size)
    : model_(model),
      compute_type_(compute_type),
      most_requests_(batch_size > 0 ? batch_size : std::numeric_limits<int64_t>::max()),
      most_tokens_(batch_size > 0            ? std::numeric_limits<int64_t>::max()
                   : model.device().is_cpu() ? kBatchTokensOfCpu
                                             : kBatchTokensOfGpu) {}

bool Scorer::is_plenty(int64_t requests, int64_t tokens) const {
  return requests / kBatchesAtOnce >= most_requests_ || tokens / kBatchesAtOnce >= most_tokens_;
}

std::vector<Score> Scorer::score(const std::vector<const Request*>& requests, const std::function<bool()>& stop) const {
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return is_longer(requests[a], requests[b]); });
  std::vector<const Request*> distinct;
  std::vector<size_t> place(requests.size());  // of each request in `distinct`
  for (const size_t i : order) {
    if (distinct.empty() || !is_same(*distinct.back(), *requests[i])) distinct.push_back(requests[i]);
    place[i] = distinct.size() - 1;
  }

  std::vector<Score> scores;
  while (scores.size() < distinct.size()) {
    if (stop()) return {};
    const std::span rest = std::span<const Request* const>(distinct).subspan(scores.size());
    for (const Score& score : score_batch(rest.first(batch_at(rest)))) scores.push_back(score);
  }
  std::vector<Score> result;
  for (const size_t i : place) result.push_back(scores[i]);
  return result;
}

// How many of the first requests make up a batch; they are sorted, so the first of them is as long as its rows.
size_t Scorer::batch_at(std::span<const Request* const> sorted) const {
  const int64_t fit = std::max<int64_t>(1, most_tokens_ / inputs_of(*sorted[0]));
  return static_cast<size_t>(std::min({fit, most_requests_, std::ssize(sorted)}));
}

std::vector<Score> Scorer::score_batch(std::span<const Request* const> batch) const {
  const c10::InferenceMode inference;
  const model::EvaluationMode evaluation(model_);
  const device::Autocast autocast(model_.device(), compute_type_);
  const ops::OnlySdpBackends backends(ops::without_cudnn());
  const Padded input = padded(batch);
  const at::Device device = model_.device();
  const model::TokenScores of_tokens =
      model_.score(input.ids.to(device), input.places.to(device), input.targets.to(device));
  const at::Tensor values = of_tokens.log_probabilities.cpu(), greedy = of_tokens.is_greedy.cpu();  // sync: the results
  const auto* value = values.const_data_ptr<float>();
  const auto* is_greedy = greedy.const_data_ptr<bool>();
  std::vector<Score> scores;
  for (const Request* request : batch) {
    Score score{std::accumulate(value, value + request->scored, 0.0),
                std::all_of(is_greedy, is_greedy + request->scored, [](bool is) { return is; })};
    if (!std::isfinite(score.log_likelihood)) {
      throw Error(ExitCode::numerics,
                  "evaluation: the model's logits are not finite; try float32, or an earlier checkpoint");
    }
    scores.push_back(score);
    value += request->scored, is_greedy += request->scored;
  }
  return scores;
}

}  // namespace gpt::evaluate
