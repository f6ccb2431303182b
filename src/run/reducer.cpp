#include "gpt/run/reducer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "gpt/layout/parameter_table.h"
#include "gpt/ops/flat_norm.h"

namespace gpt::run {
namespace {

// Of each layer, where the last trained parameter of it and of those after it ends.
std::vector<int64_t> ends_of_layers(const Parameters& parameters) {
  std::vector<int64_t> ends;
  for (size_t i = 0; i < parameters.rows().size(); ++i) {
    const ParameterRow& row = parameters.rows()[i];
    if (row.layer < 0) continue;  // the embeddings, which come last
    ends.resize(std::max(ends.size(), static_cast<size_t>(row.layer) + 1));
    int64_t& end = ends[static_cast<size_t>(row.layer)];
    if (row.is_trained) end = std::max(end, aligned_end(parameters.layout().offsets[i] + row.count()));
  }
  for (size_t layer = ends.size(); layer-- > 1;) ends[layer - 1] = std::max(ends[layer - 1], ends[layer]);
  return ends;
}

}  // namespace

Reducer::Reducer(Parameters parameters, Division division)
    : parameters_(std::move(parameters)),
      division_(std::move(division)),
      ends_(ends_of_layers(parameters_)),
      wire_(division_.wire_of(parameters_[0].gradient_type())),
      stretch_(division_.stretch(parameters_.layout().trained_size)),
      spans_(division_.spans(parameters_.layout().trained_size)) {}

void Reducer::begin(const std::vector<bool>& has_gradients) {
  const size_t in_use = parameters_.lane();
  for (size_t lane = 0; lane < has_gradients.size(); ++lane) {
    if (has_gradients[lane]) continue;
    parameters_.use_lane(lane);
    parameters_.mark_gradients();
    parameters_.gradient_buffer(lane).zero_();
  }
  parameters_.use_lane(in_use);
  summed_ = 0;
}

void Reducer::layer_done(int64_t layer) { complete(ends_[static_cast<size_t>(layer)]); }

void Reducer::complete(int64_t end) {
  const int64_t size = parameters_.layout().trained_size;
  for (int64_t next; summed_ < size && (next = std::min(summed_ + stretch_, size)) <= end; summed_ = next)
    sum(summed_, next);
}

void Reducer::finish() {
  complete(parameters_.layout().trained_size);
  division_.ranks->finish();
  for (auto lane = static_cast<size_t>(division_.own_lanes()); lane-- > 0;) {
    parameters_.use_lane(lane);
    (void)parameters_.flat_gradients();  // throws where a parameter has had none
  }
}

// The processes' spans have the blocks of all between them, so that each adds zeros to what it has not.
at::Tensor Reducer::norm() const {
  const at::Tensor& gradients = parameters_.flat_gradients();
  if (!division_.divides_state) return ops::flat_norm(gradients);
  const at::Tensor norms = at::zeros({gradients.numel() / kParameterAlignment}, gradients.options().dtype(at::kFloat));
  for (const auto& [begin, end] : spans_)
    norms.slice(0, begin / kParameterAlignment, end / kParameterAlignment)
        .copy_(ops::block_norms(gradients.slice(0, begin, end)));
  division_.ranks->sum(norms);
  return ops::norm_of_blocks(norms);
}

void Reducer::gather_values() {
  if (!division_.divides_state) return;
  const at::Tensor values = parameters_.flat_values().detach().slice(0, 0, parameters_.layout().trained_size);
  for (int64_t begin = 0; begin < values.numel(); begin += stretch_)
    division_.ranks->begin_gather(values.slice(0, begin, std::min(begin + stretch_, values.numel())));
  division_.ranks->finish();
  parameters_.round_values();
}

void Reducer::sum(int64_t begin, int64_t end) {
  const auto part = [&](int64_t lane) {
    return parameters_.gradient_buffer(static_cast<size_t>(lane)).slice(0, begin, end);
  };
  distributed::in_pairs(division_.own_lanes(), [&part](int64_t kept, int64_t count) {
    for (int64_t lane = 0; lane < count; ++lane) part(lane).add_(part(kept + lane));
  });
  if (division_.divides_state) return division_.ranks->begin_sum_of_part(part(0), wire_);
  division_.ranks->begin_sum(part(0), wire_);
}

}  // namespace gpt::run
