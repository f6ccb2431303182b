#include "gpt/layout/stages.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "gpt/layout/parameter_table.h"

namespace gpt::layout {
namespace {

constexpr double kUnreached = std::numeric_limits<double>::infinity();

struct Costs {
  std::vector<double> blocks;
  double embedding = 0, head = 0;

  explicit Costs(const ModelConfig& model) : blocks(static_cast<size_t>(model.n_layer)) {
    constexpr double kOfWeight = 6, kOfAttention = 12;  // forward, and twice as much backward
    const auto columns = static_cast<double>(model.n_embd);
    for (const ParameterRow& row : parameter_table(model)) {
      if (row.layer < 0) {
        embedding += kOfWeight * columns;
      } else {
        (row.layer < model.n_layer ? blocks[static_cast<size_t>(row.layer)] : head) +=
            kOfWeight * static_cast<double>(row.count());
      }
    }
    if (model.tie_weights) head += kOfWeight * columns * static_cast<double>(model.padded_vocab());
    for (int64_t layer = 0; layer < model.n_layer; ++layer)
      blocks[static_cast<size_t>(layer)] +=
          kOfAttention * model.visible_share(layer) * static_cast<double>(model.attention_width() * model.block_size);
  }

  double of(int64_t stage, int64_t stages, const LayerSpan& span) const {
    return std::accumulate(blocks.begin() + span.begin, blocks.begin() + span.end, 0.0) + (stage == 0 ? embedding : 0) +
           (stage == stages - 1 ? head : 0);
  }
};

// The division for which what join(of the stages before, cost of a stage) says of all stages is least.
template <typename Join>
std::vector<LayerSpan> best_division(const Costs& costs, int64_t stages, const Join& join) {
  const auto layers = std::ssize(costs.blocks);
  std::vector<double> values(static_cast<size_t>(layers) + 1, kUnreached);  // of the stages so far, by their end
  std::vector<std::vector<int64_t>> begins;                                 // of the last of them
  values[0] = 0;
  for (int64_t stage = 0; stage < stages; ++stage) {
    std::vector<double> next(values.size(), kUnreached);
    std::vector<int64_t>& begin_of = begins.emplace_back(values.size());
    for (int64_t begin = stage; begin < layers; ++begin) {
      if (values[static_cast<size_t>(begin)] == kUnreached) continue;
      double cost = costs.of(stage, stages, {begin, begin});
      for (int64_t end = begin + 1; end <= layers - (stages - 1 - stage); ++end) {
        cost += costs.blocks[static_cast<size_t>(end - 1)];
        const double value = join(values[static_cast<size_t>(begin)], cost);
        if (value >= next[static_cast<size_t>(end)]) continue;
        next[static_cast<size_t>(end)] = value;
        begin_of[static_cast<size_t>(end)] = begin;
      }
    }
    values = std::move(next);
  }
  std::vector<LayerSpan> spans(static_cast<size_t>(stages));
  int64_t end = layers;
  for (int64_t stage = stages; stage-- > 0;) {
    const int64_t begin = begins[static_cast<size_t>(stage)][static_cast<size_t>(end)];
    spans[static_cast<size_t>(stage)] = {begin, end};
    end = begin;
  }
  return spans;
}

double slowest_of(const Costs& costs, const std::vector<LayerSpan>& spans) {
  double slowest = 0;
  for (int64_t stage = 0; stage < std::ssize(spans); ++stage)
    slowest = std::max(slowest, costs.of(stage, std::ssize(spans), spans[static_cast<size_t>(stage)]));
  return slowest;
}

}  // namespace

std::vector<LayerSpan> stages_of(const ModelConfig& model, int64_t stages) {
  if (stages == 1) return {{0, model.n_layer}};
  constexpr double kRounding = 1e-9;
  const Costs costs(model);
  const double limit = (1 + kRounding) * slowest_of(costs, best_division(costs, stages, [](double before, double cost) {
                                                      return std::max(before, cost);
                                                    }));
  return best_division(costs, stages, [limit](double before, double cost) {
    return cost > limit ? kUnreached : before + (cost / limit) * (cost / limit);
  });
}

std::vector<double> stage_costs(const ModelConfig& model, const std::vector<LayerSpan>& stages) {
  const Costs costs(model);
  std::vector<double> of_stages;
  for (int64_t stage = 0; stage < std::ssize(stages); ++stage)
    of_stages.push_back(costs.of(stage, std::ssize(stages), stages[static_cast<size_t>(stage)]));
  return of_stages;
}

}  // namespace gpt::layout
