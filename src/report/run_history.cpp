#include "gpt/report/run_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>
#include <utility>

#include "gpt/core/file.h"

namespace gpt::report {
namespace {

using nlohmann::json;

// Most lines of metrics.jsonl have about 200 bytes; with the norms of a thousand layers it is 40,000.
constexpr size_t kMaxLineBytes = 1 << 16;

json parse(std::string_view text) { return json::parse(text, nullptr, /*allow_exceptions=*/false); }

// The whole number under `key`, where there is one that a step or a time may have.
std::optional<int64_t> count(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  if (found->is_number_unsigned() && found->get<uint64_t>() > std::numeric_limits<int64_t>::max()) return std::nullopt;
  const auto value = found->get<int64_t>();
  return value >= 0 ? std::optional(value) : std::nullopt;
}

// The number under `key`: NaN for null, which stands for what was not finite; nothing where there is none.
std::optional<double> number(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return std::nullopt;
  if (found->is_null()) return std::numeric_limits<double>::quiet_NaN();
  return found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

std::optional<std::string> text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? std::optional(found->get<std::string>()) : std::nullopt;
}

DeviceUse device_use(const json& object) {
  constexpr double kMost = 1e12;
  DeviceUse use;
  for (const auto& [name, value] : kDeviceFields)
    if (const auto read = number(object, name); read && *read >= 0 && *read <= kMost) use.*value = *read;
  return use;
}

// One that is alone has no list.
std::vector<DeviceUse> devices_in(const json& line) {
  std::vector<DeviceUse> devices;
  if (const auto list = line.find("devices"); list != line.end() && list->is_array()) {
    for (const json& one : *list) devices.push_back(one.is_object() ? device_use(one) : DeviceUse());
  } else if (const auto one = line.find("device"); one != line.end() && one->is_object()) {
    devices.push_back(device_use(*one));
  }
  return devices;
}

std::optional<LayerNorms> layer_norms(const json& line) {
  const auto found = line.find("norms");
  if (found == line.end() || !found->is_object()) return std::nullopt;
  LayerNorms read;
  for (const auto& [name, norms] : kLayerNormFields) {
    const auto list = found->find(name);
    if (list == found->end() || !list->is_array()) return std::nullopt;
    for (const json& value : *list)
      (read.*norms).push_back(value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN());
  }
  const auto layers = static_cast<size_t>(read.layers());
  return layers > 1 && read.weight.size() == layers && read.update.size() == layers ? std::optional(read)
                                                                                    : std::nullopt;
}

// Standard errors are not read: their names are those of metrics too.
TaskRecord task_record(int64_t step, const std::string& task, const json& metrics) {
  TaskRecord record{.step = step, .task = task};
  if (!metrics.is_object()) return record;
  for (const auto& [name, value] : metrics.items()) {
    if (value.is_number()) record.metrics.push_back({name, value.get<double>()});
  }
  return record;
}

// perf: most lines of a long run are those of steps between two that are logged, as MetricsFile writes them:
// {"step":3,"loss":4.1,"lr":0.001,"grad_norm":0.5,"time":1764.1,"tokens":512}. Any other is read as JSON.
std::optional<LossRecord> loss_in(std::string_view line) {
  LossRecord record;
  const char *at = line.data(), *const end = at + line.size();
  const auto read = [&](std::string_view key, auto& value) {
    if (static_cast<size_t>(end - at) < key.size() || std::string_view(at, key.size()) != key) return false;
    const auto [behind, error] = std::from_chars(at + key.size(), end, value);
    at = behind;
    return error == std::errc() && value >= 0;
  };
  const bool is_one = read(R"({"step":)", record.step) && read(R"(,"loss":)", record.loss) &&
                      read(R"(,"lr":)", record.learning_rate) && read(R"(,"grad_norm":)", record.grad_norm) &&
                      read(R"(,"time":)", record.at.time) && read(R"(,"tokens":)", record.at.tokens);
  return is_one && std::string_view(at, static_cast<size_t>(end - at)) == "}" ? std::optional(record) : std::nullopt;
}

void read_line(const json& line, int64_t last_step, RunHistory& history) {
  const auto step = count(line, "step");
  if (!step || *step > last_step) return;
  const auto value = [&](const char* key) {
    return number(line, key).value_or(std::numeric_limits<double>::quiet_NaN());
  };
  const Moment at{number(line, "time").value_or(0), count(line, "tokens").value_or(0)};
  if (const auto task = text(line, "task")) {
    if (const auto found = line.find("metrics"); found != line.end()) history.add(task_record(*step, *task, *found));
  } else if (number(line, "loss") && !line.contains("step_ms")) {
    const LossRecord record{.step = *step,
                            .loss = value("loss"),
                            .learning_rate = value("lr"),
                            .grad_norm = value("grad_norm")};
    line.contains("lr") ? history.add(record)
                        : history.loss.add(*step, record.loss);  // older files have the loss alone
  } else if (number(line, "loss")) {
    history.add(StepRecord{.step = *step,
                           .loss = value("loss"),
                           .learning_rate = value("lr"),
                           .grad_norm = value("grad_norm"),
                           .step_ms = value("step_ms"),
                           .tokens_per_second = value("tokens_per_second"),
                           .mfu = number(line, "mfu"),
                           .peak_memory_mb = value("peak_memory_mb"),
                           .devices = devices_in(line),
                           .norms = layer_norms(line),
                           .at = at});
  } else if (number(line, "val_loss")) {
    history.add(EvaluationRecord{.step = *step,
                                 .loss = value("val_loss"),
                                 .bits_per_byte = number(line, "val_bits_per_byte"),
                                 .standard_error = number(line, "val_loss_error"),
                                 .at = at});
  }
}

// Calls read(element, step) for each object of the list under `key` that has a step up to `last_step`.
template <class Read>
void read_list(const json& parent, const char* key, int64_t last_step, const Read& read) {
  const auto list = parent.find(key);
  if (list == parent.end() || !list->is_array()) return;
  for (const json& element : *list) {
    const auto step = element.is_object() ? count(element, "step") : std::nullopt;
    if (step && *step <= last_step) read(element, *step);
  }
}

}  // namespace

void RunHistory::add(const StepRecord& step) {
  loss.add(step.step, step.loss);
  learning_rate.add(step.step, step.learning_rate);
  grad_norm.add(step.step, step.grad_norm);
  tokens_per_second.add(step.step, step.tokens_per_second);
  peak_memory_mb.add(step.step, step.peak_memory_mb);
  if (step.mfu) mfu.add(step.step, *step.mfu);
  if (!step.devices.empty()) add(step.step, step.devices);
  if (step.norms) add(step.step, *step.norms);
  // A record speaks for the steps since the last one; how many those are is not known of the first.
  const auto steps = static_cast<double>(last_step ? step.step - last_step->step : 1);
  const double passed = steps * step.step_ms / 1e3, done = passed * step.tokens_per_second;
  if (steps > 0 && std::isfinite(done)) {
    seconds += passed;
    tokens += done;
  }
  seconds_at_step.add(step.step, seconds);
  tokens_at_step.add(step.step, tokens);
  last_step = step;
}

void RunHistory::add(int64_t step, const std::vector<DeviceUse>& devices) {
  const auto keep = [step](Curve& curve, const DeviceUse::Value& value) {
    if (value) curve.add(step, *value);
  };
  keep(gpu_busy, least(devices, &DeviceUse::utilization));
  keep(cores_busy, least(devices, &DeviceUse::cores_busy));
  keep(cores_others, most(devices, &DeviceUse::cores_others));
  keep(device_memory, most_memory_share(devices));
  last_devices = devices;
}

void RunHistory::add(int64_t step, const LayerNorms& norms) {
  const auto all = static_cast<size_t>(norms.layers()), shown = std::min(all, kMaxLayers);
  layers.resize(shown);
  for (size_t i = 0; i < shown; ++i) {
    const size_t layer = (i * (all - 1) + (shown - 1) / 2) / (shown - 1);  // rounded, from the first to the last
    Layer& of = layers[i];
    of.name = norms.name_of(static_cast<int64_t>(layer));
    of.gradient.add(step, norms.gradient[layer]);
    of.weight.add(step, norms.weight[layer]);
    of.change.add(step, norms.update[layer] / norms.weight[layer]);
  }
}

void RunHistory::add(const LossRecord& record) {
  loss.add(record.step, record.loss);
  learning_rate.add(record.step, record.learning_rate);
  grad_norm.add(record.step, record.grad_norm);
}

void RunHistory::add(const EvaluationRecord& evaluation) {
  validation_loss.add(evaluation.step, evaluation.loss);
  if (evaluation.bits_per_byte) bits_per_byte.add(evaluation.step, *evaluation.bits_per_byte);
  last_evaluation = evaluation;
  if (std::isfinite(evaluation.loss) && (!best_evaluation || evaluation.loss < best_evaluation->loss))
    best_evaluation = evaluation;
}

void RunHistory::add(const TaskRecord& task) {
  if (task.metrics.empty()) return;
  const std::string name = clipped(fmt::format("{} {}", task.task, task.main_metric().name), kMaxTaskBytes);
  if (!tasks.contains(name) && tasks.size() == kMaxTasks) return;
  tasks[name].add(task.step, task.main_metric().value);
}

void RunHistory::add(SampleRecord sample) {
  sample.text = clipped(sample.text, kMaxSampleBytes);
  samples.push_back(std::move(sample));
  if (samples.size() > kMaxSamples) samples.pop_front();
}

void RunHistory::add(Event event) {
  event.what = clipped(event.what, kMaxEventBytes);
  if (event.is_routine) {
    const auto earlier = std::find_if(events.begin(), events.end(),
                                      [&](const Event& known) { return known.is_routine && known.what == event.what; });
    if (earlier != events.end()) {
      event.times += earlier->times;
      events.erase(earlier);
    }
  }
  events.push_back(std::move(event));
  if (events.size() > kMaxEvents) events.pop_front();
}

std::string clipped(std::string_view text, size_t size) {
  if (text.size() <= size) return std::string(text);
  size_t end = size;
  while (end > 0 && size - end < 4 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "…";
}

void read_metrics(const std::string& path, int64_t last_step, RunHistory& history) {
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) return;
  const MappedFile file(path, ExitCode::disk);  // a long run's has gigabytes
  const std::span<const std::byte> bytes = file.bytes();
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    read_metrics_line(rest.substr(0, end), last_step, history);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

bool read_metrics_line(std::string_view text, int64_t last_step, RunHistory& history) {
  if (text.size() > kMaxLineBytes) return false;
  if (const auto loss = loss_in(text)) {
    if (loss->step <= last_step) history.add(*loss);
    return true;
  }
  const json line = parse(text);
  if (line.is_object()) read_line(line, last_step, history);
  return line.is_object();
}

void read_samples_and_events(std::string_view text_of_json, int64_t last_step, RunHistory& history) {
  const json object = parse(text_of_json);
  if (!object.is_object()) return;
  read_list(object, "samples", last_step, [&](const json& sample, int64_t step) {
    if (auto what = text(sample, "text")) history.add(SampleRecord{step, std::move(*what)});
  });
  read_list(object, "events", last_step, [&](const json& event, int64_t step) {
    if (auto what = text(event, "what"))
      history.add(RunHistory::Event{.step = step,
                                    .time = count(event, "time").value_or(0),
                                    .what = std::move(*what),
                                    .is_routine = event.contains("times"),
                                    .times = count(event, "times").value_or(1)});
  });
}

std::optional<ReportedState> read_reported_state(std::string_view text_of_json) {
  const json object = parse(text_of_json);
  if (!object.is_object()) return std::nullopt;
  const auto ended = object.find("has_ended");
  if (ended == object.end() || !ended->is_boolean()) return std::nullopt;
  return ReportedState{.has_ended = ended->get<bool>(), .stopped = text(object, "stopped").value_or("")};
}

}  // namespace gpt::report
