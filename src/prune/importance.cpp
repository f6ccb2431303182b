#include "gpt/prune/importance.h"

#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/nonzero.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/model/operators_in_scope.h"

namespace gpt::prune {
namespace {

using Role = layout::ParameterRole;

// What passes, added up over all tokens.
struct Seen {
  at::Tensor places;                       // of the tokens of a batch among its positions, which may be padding
  std::vector<at::Tensor> neurons, heads;  // of each layer, float64: sums of absolute values, (F) and (H D)
  std::vector<double> turns;               // of each layer: sums of 1 - cosine
  at::Tensor stream;                       // as the last layer was given it
  int64_t tokens = 0;                      // that have passed

  explicit Seen(int64_t layers)
      : neurons(static_cast<size_t>(layers)), heads(neurons), turns(static_cast<size_t>(layers)) {}
};

void add_absolutes(at::Tensor& sum, const at::Tensor& x, const at::Tensor& places) {
  const at::Tensor absolutes = x.flatten(0, -2).index_select(0, places).abs().sum(0, /*keepdim=*/false, at::kDouble);
  sum = sum.defined() ? sum + absolutes : absolutes;
}

// Places of the tokens up to the last target of each row that counts.
at::Tensor places_of_tokens(const at::Tensor& targets) {
  const at::Tensor counted = targets.ge(0).to(at::kLong).flip(1).cumsum(1).flip(1);
  return at::nonzero(counted.flatten()).flatten();
}

class ObservingOperators final : public ops::WrappedOperators {
 public:
  ObservingOperators(ops::SharedOperators inner, Seen& seen, NormPlace norm_place)
      : WrappedOperators(std::move(inner)), seen_(seen), norm_place_(norm_place) {}

  ops::Normalized add_norm(const ops::Normalization& norm, const at::Tensor& x, const at::Tensor& branch,
                           const ops::DropoutSpec& dropout) const override {
    ops::Normalized result = inner_->add_norm(norm, x, branch, dropout);
    if (norm.site.role == Role::attention_norm || norm.site.role == Role::final_norm)
      see_stream(norm.site.layer, result.sum);
    return result;
  }

  at::Tensor linear(const at::Tensor& x, const ops::LinearLayer& layer, ops::ProductInput input) const override {
    const auto index = static_cast<size_t>(layer.site.layer);
    if (layer.site.role == Role::attention_in && norm_place_ == NormPlace::output) see_stream(layer.site.layer, x);
    if (layer.site.role == Role::mlp_out) add_absolutes(seen_.neurons[index], x, seen_.places);
    if (layer.site.role == Role::attention_out) add_absolutes(seen_.heads[index], x, seen_.places);
    return inner_->linear(x, layer, input);
  }

 private:
  // Each layer begins with the stream that the one before it has left.
  void see_stream(int64_t layer, const at::Tensor& stream) const {
    if (layer > 0) {
      const at::Tensor cosines = at::cosine_similarity(seen_.stream.to(at::kFloat), stream.to(at::kFloat), -1),
                       of_tokens = cosines.flatten().index_select(0, seen_.places);
      seen_.turns[static_cast<size_t>(layer - 1)] += (1 - of_tokens).sum(at::kDouble).item<double>();
    }
    seen_.stream = stream;
  }

  Seen& seen_;
  const NormPlace norm_place_;
};

// What each of `parts` equally wide pieces of the columns of a product's weight (out, in) adds to the product's output.
std::vector<double> added_by(const at::Tensor& absolutes, const at::Tensor& weight, int64_t parts, int64_t tokens) {
  const at::Tensor norms = at::linalg_vector_norm(weight.detach(), 2, {0}, /*keepdim=*/false, at::kDouble),
                   added =
                       (absolutes / static_cast<double>(tokens) * norms).view({parts, -1}).sum(1).cpu().contiguous();
  return {added.const_data_ptr<double>(), added.const_data_ptr<double>() + parts};
}

// Their mean loss; `seen` hears of each batch, where it is given.
double read(const model::GPT& model, const batches::Batch& sequences, Seen* seen) {
  const int64_t N = sequences.inputs.size(0), T = sequences.inputs.size(1);
  const int64_t most = std::max<int64_t>(1, (model.device().is_cpu() ? 4096 : 32'768) / T);
  double sum = 0;
  for (int64_t begin = 0; begin < N; begin += most) {
    log::status(fmt::format("{} of {} sequences", begin, N));
    const auto part = [&](const at::Tensor& all) {
      return all.defined() ? all.narrow(0, begin, std::min(most, N - begin)).to(model.device()) : all;
    };
    const at::Tensor targets = part(sequences.targets);
    if (seen) {
      seen->places = places_of_tokens(targets);
      seen->tokens += seen->places.numel();
    }
    sum += model.token_losses(part(sequences.inputs), targets, part(sequences.starts)).sum(at::kDouble).item<double>();
  }
  log::status("");
  return sum / static_cast<double>(sequences.targets.ge(0).sum().item<int64_t>());
}

}  // namespace

double mean_loss(const model::GPT& model, const batches::Batch& sequences) { return read(model, sequences, nullptr); }

Measured measure_importance(model::GPT& model, const batches::Batch& sequences) {
  const ModelConfig& config = model.config();
  const parameters::Parameters& parameters = model.parameters();
  Seen seen(config.n_layer);
  Measured result;
  {
    const model::OperatorsInScope observing(model, std::make_shared<ObservingOperators>(model.operators(), seen,
                                                                                        config.norm_place));
    result.loss = read(model, sequences, &seen);
  }
  if (!std::isfinite(result.loss))
    throw Error(ExitCode::numerics, "the model's loss on this data is not finite, so nothing can be measured with it");
  for (int64_t layer = 0; layer < config.n_layer; ++layer) {
    const auto i = static_cast<size_t>(layer);
    const auto of = [&](const at::Tensor& absolutes, Role role, int64_t parts) {
      return added_by(absolutes, parameters.weight(role, layer).value(), parts, seen.tokens);
    };
    result.importance.neurons.push_back(of(seen.neurons[i], Role::mlp_out, config.hidden()));
    result.importance.heads.push_back(of(seen.heads[i], Role::attention_out, config.heads()));
    result.importance.layers.push_back(seen.turns[i] / static_cast<double>(seen.tokens));
  }
  return result;
}

Importance random_importance(const ModelConfig& model, uint64_t seed) {
  std::mt19937_64 generator(seed);
  const auto drawn = [&](int64_t count) {
    std::vector<double> values(static_cast<size_t>(count));
    for (double& value : values) value = static_cast<double>(generator() >> 11);
    return values;
  };
  Importance importance;
  importance.layers = drawn(model.n_layer);
  for (int64_t layer = 0; layer < model.n_layer; ++layer) {
    importance.neurons.push_back(drawn(model.hidden()));
    importance.heads.push_back(drawn(model.heads()));
  }
  return importance;
}

}  // namespace gpt::prune
