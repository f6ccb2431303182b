#include "gpt/bench/measurement.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "gpt/device/device.h"
#include "measured_run.h"

namespace gpt::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

int64_t updates_between_waits(c10::DeviceType device, double update_seconds, int64_t updates) {
  constexpr double kSeconds = 0.1;
  constexpr int64_t kLeastGroups = 5;
  if (device == at::kCPU) return 1;
  return std::clamp<int64_t>(std::llround(kSeconds / update_seconds), 1, std::max<int64_t>(1, updates / kLeastGroups));
}

Measurement measure(const Config& config, const MeasurementLength& length) {
  constexpr int64_t kLastLosses = 10;
  const auto begin = Clock::now();
  MeasuredRun run(config);
  Measurement result;
  result.start_seconds = seconds_since(begin);
  double fastest = std::numeric_limits<double>::infinity();
  for (int64_t i = run.warm_up(length.warm_up); i > 0; --i) fastest = std::min(fastest, run.update().seconds);
  const int64_t group = updates_between_waits(run.device().device.type(), fastest, length.updates);
  std::vector<double> seconds;  // what an update took, group by group
  std::vector<at::Tensor> losses;
  int64_t tokens = 0;
  const double cpu_before = cpu_seconds();
  for (int64_t done = 0; done < length.updates;) {
    const auto group_begin = Clock::now();
    const int64_t end = std::min(done + group, length.updates), count = end - done;
    while (done < end) {
      tokens += run.launch();
      if (++done > length.updates - kLastLosses) losses.push_back(run.loss());
    }
    run.wait();
    seconds.push_back(seconds_since(group_begin) / static_cast<double>(count));
  }
  const double cpu = cpu_seconds() - cpu_before;
  run.require_recorded();
  const double update = median(seconds), count = static_cast<double>(length.updates);
  result.step_ms = 1000 * update;
  result.cpu_ms = 1000 * cpu / count;
  result.tokens_per_second = static_cast<double>(tokens) / count / update;
  result.peak_bytes = peak_allocated_bytes(run.device().device);
  result.tensor_bytes = peak_tensor_bytes(run.device().device);
  result.threads = at::get_num_threads();
  for (const at::Tensor& loss : losses) result.loss += loss.item<double>() / static_cast<double>(losses.size());
  return result;
}

std::string to_json(const Measurement& m) {
  return nlohmann::ordered_json{{"step_ms", m.step_ms},
                                {"cpu_ms", m.cpu_ms},
                                {"tokens_per_second", m.tokens_per_second},
                                {"peak_bytes", m.peak_bytes},
                                {"tensor_bytes", m.tensor_bytes},
                                {"threads", m.threads},
                                {"loss", m.loss},
                                {"start_seconds", m.start_seconds}}
      .dump();
}

Measurement measurement_from_json(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  // JSON writes what is not a number as null.
  const auto number = [&json](const char* key) {
    return json.at(key).is_null() ? std::numeric_limits<double>::quiet_NaN() : json.at(key).get<double>();
  };
  return {.step_ms = number("step_ms"),
          .cpu_ms = number("cpu_ms"),
          .tokens_per_second = number("tokens_per_second"),
          .peak_bytes = json.at("peak_bytes").get<int64_t>(),
          .tensor_bytes = json.at("tensor_bytes").get<int64_t>(),
          .threads = json.at("threads").get<int64_t>(),
          .loss = number("loss"),
          .start_seconds = number("start_seconds")};
}

}  // namespace gpt::bench
