#include "gpt/bench/learning.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "gpt/bench/measurement.h"
#include "gpt/core/statistics.h"
#include "gpt/layout/parameter_table.h"
#include "measured_run.h"

namespace gpt::bench {
namespace {

// After how many updates the next evaluation follows: all are evenly spread, the last is at the end.
int64_t next_evaluation(int64_t done, const LearningLength& length) {
  const int64_t evaluations = done * length.evaluations / length.updates + 1;
  return (evaluations * length.updates + length.evaluations - 1) / length.evaluations;
}

}  // namespace

double Learning::loss_after(double updates) const {
  const auto after = std::find_if(points.begin(), points.end(),
                                  [&](const Point& point) { return static_cast<double>(point.updates) >= updates; });
  if (after == points.begin()) return after->loss;
  if (after == points.end()) return points.back().loss;
  const Point& before = *std::prev(after);
  const double part =
      (updates - static_cast<double>(before.updates)) / static_cast<double>(after->updates - before.updates);
  return before.loss + part * (after->loss - before.loss);
}

Learning learn(run::Setup setup, const LearningLength& length) {
  MeasuredRun run(std::move(setup));
  Learning result{.parameters = layout::parameter_count(run.setup().config.model), .points = {}};
  const auto evaluate = [&](int64_t updates) { result.points.push_back({updates, run.validation_loss()}); };
  evaluate(0);
  std::vector<double> seconds;  // what an update took, group by group
  double fastest = std::numeric_limits<double>::infinity();
  int64_t tokens = 0;
  for (int64_t done = 0, next = 0; done < length.updates;) {
    if (done == next) next = next_evaluation(done, length);
    const int64_t group = updates_between_waits(run.device().device.type(), fastest, length.updates),
                  count = std::min(group, next - done);
    const auto updates = run.update(count);
    tokens += updates.tokens;
    seconds.push_back(updates.seconds / static_cast<double>(count));
    fastest = std::min(fastest, seconds.back());
    done += count;
    if (done == next) evaluate(done);
  }
  result.step_ms = 1000 * median(seconds);
  result.threads = at::get_num_threads();
  result.tokens_per_update = static_cast<double>(tokens) / static_cast<double>(length.updates);
  return result;
}

std::string to_json(const Learning& learning) {
  nlohmann::ordered_json points = nlohmann::ordered_json::array();
  for (const auto& [updates, loss] : learning.points) points.push_back({updates, loss});
  return nlohmann::ordered_json{{"parameters", learning.parameters},
                                {"step_ms", learning.step_ms},
                                {"tokens_per_update", learning.tokens_per_update},
                                {"threads", learning.threads},
                                {"validation_loss", points}}
      .dump();
}

Learning learning_from_json(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  Learning result{.parameters = json.at("parameters").get<int64_t>(),
                  .step_ms = json.at("step_ms").get<double>(),
                  .tokens_per_update = json.at("tokens_per_update").get<double>(),
                  .threads = json.at("threads").get<int64_t>(),
                  .points = {}};
  for (const auto& point : json.at("validation_loss")) {
    // JSON writes what is not a number as null.
    const auto& loss = point.at(1);
    result.points.push_back(
        {point.at(0).get<int64_t>(), loss.is_null() ? std::numeric_limits<double>::quiet_NaN() : loss.get<double>()});
  }
  return result;
}

}  // namespace gpt::bench
