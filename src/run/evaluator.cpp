#include "gpt/run/evaluator.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numbers>
#include <numeric>
#include <optional>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/map_faults.h"
#include "gpt/model/evaluation_mode.h"
#include "gpt/ops/sdp_backends.h"

namespace gpt::run {

namespace {

constexpr double kWantedError = 0.005;  // a share of the loss
// Fewer losses would not tell how much they vary: from so many, the standard error itself is known to 7 %.
constexpr int64_t kFewestSequences = 100;
constexpr double kForwardsOfUpdate = 3;  // what an update costs, in forward passes
constexpr uint64_t kOrderKey = 0;        // runs are compared on the same sequences

const Evaluation kStopped{.loss = std::numeric_limits<double>::quiet_NaN()};

// The losses of sequences of some tokens each, drawn without replacement from `all`.
struct Sample {
  // The sum over all tokens; the mean per token; the variance of what a sequence has more than that, over the tokens of one (Cochran's
  // ratio estimator: where all have as many, that of their means).
  double sum = 0, mean = 0, variance = 0;
  int64_t count = 0, tokens = 0, all = 0;

  Sample(const at::Tensor& sums, const std::vector<int64_t>& counts, int64_t all)
      : count(sums.numel()), tokens(std::accumulate(counts.begin(), counts.end(), int64_t{0})), all(all) {
    TORCH_CHECK(count == std::ssize(counts), "Evaluator: ", count, " sums of ", counts.size(), " sequences");
    const auto* const first = sums.const_data_ptr<double>();
    const auto n = static_cast<double>(count), T = static_cast<double>(tokens) / n;
    sum = std::accumulate(first, first + count, 0.0);
    mean = sum / n / T;
    for (int64_t i = 0; i < count; ++i) {
      const double share = static_cast<double>(counts[static_cast<size_t>(i)]) / T;
      variance += std::pow(first[i] / T - mean * share, 2) / (n - 1);
    }
  }

  double standard_error() const {
    const double share = static_cast<double>(count) / static_cast<double>(all);
    return std::sqrt(variance / static_cast<double>(count) * (1 - share));
  }
  bool is_exact_enough() const { return !(standard_error() > kWantedError * mean); }  // nor is there one of NaN
  // How many would be enough, if the others vary as these do.
  int64_t wanted_count() const {
    return std::llround(1 / (std::pow(kWantedError * mean, 2) / variance + 1 / static_cast<double>(all)));
  }
};

batches::SplitWindows windows_of(const data::Tokens& validation, int64_t block_size, at::Device device, bool packs) {
  try {
    return {validation, block_size, device, packs};
  } catch (const Error& error) { throw Error(error.code(), fmt::format("validation: {}", error.what())); }
}

}  // namespace

int64_t automatic_eval_sequences(int64_t block_size) { return 400 + 48000 / block_size; }

std::optional<int64_t> most_eval_sequences(const TrainingConfig& training, int64_t planned_steps) {
  constexpr double kShare = 0.01;
  if (!training.schedule.has_time() || training.cadence.eval_batches || planned_steps == 0) return std::nullopt;
  const int64_t of_update = training.batch_size * training.gradient_accumulation_steps;
  const auto fitting =
      static_cast<int64_t>(kShare * kForwardsOfUpdate * static_cast<double>(planned_steps * of_update));
  return std::max(training.batch_size, fitting);
}

int64_t evaluation_tokens(const TrainingConfig& training, int64_t block_size, int64_t validation_tokens,
                          std::optional<int64_t> most) {
  const int64_t all = std::max<int64_t>(0, validation_tokens - 1);
  const auto batches = training.cadence.eval_batches;
  if (batches == 0) return all;
  int64_t sequences = batches ? *batches * training.batch_size : automatic_eval_sequences(block_size);
  if (most) sequences = std::min(sequences, *most);
  return sequences >= all / block_size ? all : sequences * block_size;
}

double evaluation_steps(const TrainingConfig& training, int64_t block_size, int64_t tokens) {
  const int64_t step_tokens = training.batch_size * training.gradient_accumulation_steps * block_size;
  return static_cast<double>(tokens) / (kForwardsOfUpdate * static_cast<double>(step_tokens));
}

Evaluator::Evaluator(const data::Corpus& corpus, const batches::BatchShape& batch, const EvaluationRule& rule,
                     at::Device device, const device::Precision& precision, const distributed::Mesh& mesh)
    : corpus_(corpus),
      windows_(windows_of(corpus.validation, batch.length, device, rule.packing)),
      order_(static_cast<uint64_t>(windows_.size()), kOrderKey),
      batch_size_(batch.sequences),
      most_(rule.most.value_or(std::numeric_limits<int64_t>::max())),
      takes_neighbours_(rule.takes_neighbours),
      device_(device),
      autocast_type_(precision.autocast_type()),
      ranks_(mesh.data),
      stages_(mesh.pipeline.stages) {
  const auto batches = rule.eval_batches;
  is_settled_ = batches || rule.sequences > 0 || takes_neighbours_;
  if (batches == 0) {
    draw(windows_.size());
  } else if (takes_neighbours_) {
    take_neighbours(batches.value_or(at::divup(automatic_eval_sequences(batch.length), batch_size_)));
  } else {
    draw(batches ? *batches * batch_size_ : is_settled_ ? rule.sequences : std::min(kFewestSequences, most_));
  }
  read_in_order();
}

// Whole batches, as far as there are so many sequences.
void Evaluator::draw(int64_t sequences) {
  sequences = std::min(at::divup(sequences, batch_size_) * batch_size_, windows_.size());
  for (int64_t i = std::ssize(chosen_); i < sequences; ++i)
    chosen_.push_back(static_cast<int64_t>(order_(static_cast<uint64_t>(i))));
}

// Spread evenly; the shorter sequence at the end was a batch of its own.
void Evaluator::take_neighbours(int64_t batches) {
  const int64_t all = at::divup(windows_.size(), batch_size_) + (windows_.rest() > 0);
  batches = std::min(batches, all);
  for (int64_t i = 0; i < batches; ++i) {
    const int64_t first = i * all / batches * batch_size_;
    for (int64_t w = first; w < std::min(first + batch_size_, windows_.size()); ++w) chosen_.push_back(w);
  }
}

// Where nothing is left out, the order does not matter, and a file is read faster so.
void Evaluator::read_in_order() {
  if (is_whole()) std::sort(chosen_.begin(), chosen_.end());
}

bool Evaluator::knows_bytes() const { return data::text_bytes(corpus_, std::vector<data::Tokens>()).has_value(); }

std::optional<double> Evaluator::bytes() {
  if (bytes_) return bytes_;
  std::vector<data::Tokens> parts;
  for (const int64_t window : chosen_) parts.push_back(windows_.targets_of(window));
  if (is_whole()) parts.push_back(windows_.targets_of(windows_.size()));
  return bytes_ = data::text_bytes(corpus_, parts);
}

at::Tensor Evaluator::sums(model::GPT& model, const batches::Batch& batch) const {
  device::Autocast autocast(device_, autocast_type_);
  std::optional<ops::OnlySdpBackends> kernels;
  if (batch.inputs.size(1) == 1) kernels.emplace(ops::without_cudnn());  // what is left of the validation tokens
  return model.token_losses(batch.inputs, batch.targets, batch.starts).sum(1, /*keepdim=*/false, at::kDouble);
}

std::vector<int64_t> Evaluator::counts() const {
  std::vector<int64_t> counts;
  for (const int64_t window : chosen_) counts.push_back(windows_.targets_in(window));
  return counts;
}

bool Evaluator::settle(const at::Tensor& sums) {
  const Sample sample(sums, counts(), windows_.size());
  const int64_t most = std::min(2 * sample.count, most_);
  if (is_settled_ || is_whole() || sample.is_exact_enough() || sample.count >= most) return true;
  // Not far beyond what is known, as so few may vary less or more than all do.
  draw(std::clamp(sample.wanted_count(), sample.count + 1, most));
  return false;
}

// Every process computes it, so that all have the same.
double Evaluator::sum_of_rest(model::GPT& model) const {
  const at::Tensor sum = sums(model, windows_.rest_batch()).cpu();  // sync: once per evaluation of a whole split
  stages_->sum(sum);
  return sum.item<double>();
}

Evaluation Evaluator::run(model::GPT& model, const std::function<bool(double share)>& stop) {
  at::NoGradGuard no_grad;
  const model::EvaluationMode evaluation(model);
  at::Tensor all = at::empty({0}, at::kDouble);
  int64_t done = 0;
  do {
    std::vector<at::Tensor> sums;  // on the device, so that a GPU does not wait for the host between batches
    bool has_own = false;          // of this round, in which each process has a batch, or at the end none
    while (done < std::ssize(chosen_)) {
      const int64_t batch = done / batch_size_, end = std::min(done + batch_size_, std::ssize(chosen_));
      if (batch % ranks_->size() == 0 && stop(static_cast<double>(done) / static_cast<double>(chosen_.size())))
        return kStopped;
      has_own = has_own || is_own(batch);
      sums.push_back(is_own(batch) ? this->sums(model, windows_.batch({chosen_.begin() + done, chosen_.begin() + end}))
                                   : at::zeros({end - done}, device_).to(at::kDouble));
      done = end;
      const bool ends_round = (batch + 1) % ranks_->size() == 0 || done == std::ssize(chosen_);
      if (ends_round && !std::exchange(has_own, false) && model.layer_weights()) model.layer_weights()->join_forward();
    }
    // sync: a few times in the first evaluation of a run, once in the others
    at::Tensor drawn = sums.empty() ? at::empty({0}, at::kDouble) : at::cat(sums).cpu();
    for (const auto& group : {ranks_, stages_}) group->sum(drawn);  // of numbers and zeros: nothing is rounded
    all = at::cat({all, drawn});
  } while (!settle(all));
  const bool has_rest = is_whole() && windows_.rest() > 0;
  if (has_rest && stop(1)) return kStopped;
  const double rest = has_rest ? sum_of_rest(model) : 0;
  map_faults::require_intact();
  const Sample sample(all, counts(), windows_.size());
  read_in_order();

  Evaluation result{.sequences = sample.count, .tokens = sample.tokens + (has_rest ? windows_.rest() : 0)};
  const double nats = sample.sum + rest;
  result.loss = nats / static_cast<double>(result.tokens);
  is_settled_ = is_settled_ || std::isfinite(result.loss);
  if (!is_whole() && !takes_neighbours_ && sample.count > 1) result.standard_error = sample.standard_error();
  if (const auto text = bytes(); text && *text > 0) result.bits_per_byte = nats / std::numbers::ln2 / *text;
  return result;
}

}  // namespace gpt::run
