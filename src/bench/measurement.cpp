#include "gpt/bench/measurement.h"
#include "gpt/core/processors.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "gpt/core/running_clock.h"
#include "gpt/device/device.h"
#include "gpt/plan/resolve.h"
#include "measured_run.h"

namespace gpt::bench {
namespace {

using Clock = std::chrono::steady_clock;

nlohmann::ordered_json json_of(const std::vector<plan::PartWork>& parts) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [name, work] : parts) list.push_back({{"name", name}, {"flops", work.flops}, {"bytes", work.bytes}});
  return list;
}

std::vector<plan::PartWork> work_from_json(const nlohmann::json& list) {
  std::vector<plan::PartWork> parts;
  for (const auto& part : list) parts.push_back({part.at("name"), {part.at("flops"), part.at("bytes")}});
  return parts;
}

}  // namespace

TypicalUpdate typical_update(const std::vector<TimedGroup>& groups) {
  const auto median_of = [&groups](auto value) {
    std::vector<double> values;
    for (const TimedGroup& group : groups) values.push_back(value(group));
    return median(values);
  };
  return {.seconds = median_of([](const TimedGroup& g) { return g.seconds / static_cast<double>(g.updates); }),
          .tokens = median_of(
              [](const TimedGroup& g) { return static_cast<double>(g.tokens) / static_cast<double>(g.updates); }),
          .tokens_per_second =
              median_of([](const TimedGroup& g) { return static_cast<double>(g.tokens) / g.seconds; })};
}

int64_t updates_between_waits(c10::DeviceType device, double update_seconds, int64_t updates) {
  constexpr double kSeconds = 0.1;
  constexpr int64_t kLeastGroups = 5;
  if (device == at::kCPU) return 1;
  return std::clamp<int64_t>(std::llround(kSeconds / update_seconds), 1, std::max<int64_t>(1, updates / kLeastGroups));
}

Measurement measure(const Config& config, const MeasurementLength& length) {
  constexpr int64_t kLastLosses = 10;
  const auto begin = Clock::now();
  MeasuredRun run(plan::resolve(config));
  Measurement result;
  result.start_seconds = seconds_since(begin);
  double fastest = std::numeric_limits<double>::infinity();
  for (int64_t i = run.warm_up(length.warm_up); i > 0; --i) fastest = std::min(fastest, run.update().seconds);
  const int64_t group = updates_between_waits(run.device().device.type(), fastest, length.updates);
  std::vector<TimedGroup> groups;
  std::vector<at::Tensor> losses;
  const double cpu_before = processor_seconds();
  for (int64_t done = 0; done < length.updates;) {
    const auto group_begin = Clock::now();
    const int64_t end = std::min(done + group, length.updates), count = end - done;
    int64_t tokens = 0;
    while (done < end) {
      tokens += run.launch();
      if (++done > length.updates - kLastLosses) losses.push_back(run.loss());
    }
    run.wait();
    groups.push_back({count, tokens, seconds_since(group_begin)});
  }
  const double cpu = processor_seconds() - cpu_before;
  run.require_recorded();
  const TypicalUpdate update = typical_update(groups);
  result.step_ms = 1000 * update.seconds;
  result.cpu_ms = 1000 * cpu / static_cast<double>(length.updates);
  result.tokens_per_second = update.tokens_per_second;
  const UpdateConfig& resolved = run.setup().config;
  result.work = plan::work_of_step(resolved.model, resolved.training, run.precision(), update.tokens);
  result.peak_bytes = device::peak_allocated_bytes(run.device().device);
  result.tensor_bytes = device::peak_tensor_bytes(run.device().device);
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
                                {"start_seconds", m.start_seconds},
                                {"work", json_of(m.work)}}
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
          .start_seconds = number("start_seconds"),
          .work = work_from_json(json.at("work"))};
}

std::string to_json(const plan::MachineSpeed& speed) {
  return nlohmann::ordered_json{{"peak_flops", speed.flops}, {"copy_bytes_per_second", speed.bytes_per_second}}.dump();
}

plan::MachineSpeed machine_speed_from_json(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  return {.flops = json.at("peak_flops"), .bytes_per_second = json.at("copy_bytes_per_second")};
}

}  // namespace gpt::bench
