#include "gpt/report/metrics_file.h"

#include <cmath>

#include "gpt/report/run_page.h"
#include "json_number.h"

namespace gpt::report {
namespace {

nlohmann::ordered_json device_json(const DeviceUse& device) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, value] : kDeviceFields)
    if (const auto& number = device.*value) json[name] = json_number(*number);
  return json;
}

void add(nlohmann::ordered_json& record, const Moment& at) {
  record["time"] = std::round(1e3 * at.time) / 1e3;
  record["tokens"] = at.tokens;
}

}  // namespace

AppendFile& MetricsFile::file() {
  if (!file_) file_.emplace(path_);
  return *file_;
}

void MetricsFile::begin(const RunRecord& /*run*/) { (void)file(); }

void MetricsFile::step(const StepRecord& s) {
  nlohmann::ordered_json record{{"step", s.step},
                                {"loss", json_number(s.loss)},
                                {"lr", s.learning_rate},
                                {"grad_norm", json_number(s.grad_norm)},
                                {"step_ms", s.step_ms},
                                {"tokens_per_second", s.tokens_per_second},
                                {"sequences_per_second", s.sequences_per_second},
                                {"peak_memory_mb", s.peak_memory_mb}};
  add(record, s.at);
  if (s.mfu) record["mfu"] = *s.mfu;
  if (!s.wait_ms.empty()) record["wait_ms"] = s.wait_ms;
  if (s.memory) {
    for (const auto& [name, bytes] : s.memory->parts()) record["memory_mb"][name] = bytes / 1e6;
  }
  if (!s.devices.empty()) record["device"] = device_json(s.devices.front());
  if (s.devices.size() > 1)
    for (const DeviceUse& device : s.devices) record["devices"].push_back(device_json(device));
  if (s.norms) {
    for (const auto& [name, norms] : kLayerNormFields)
      for (const double norm : *s.norms.*norms) record["norms"][name].push_back(page_number(norm));
  }
  file().line(record.dump());
}

void MetricsFile::losses(const std::vector<LossRecord>& losses) {
  std::string lines;
  for (const LossRecord& loss : losses) {
    nlohmann::ordered_json record{{"step", loss.step},
                                  {"loss", json_number(loss.loss)},
                                  {"lr", loss.learning_rate},
                                  {"grad_norm", json_number(loss.grad_norm)}};
    add(record, loss.at);
    lines += (lines.empty() ? "" : "\n") + record.dump();
  }
  if (!lines.empty()) file().line(lines);
}

void MetricsFile::evaluation(const EvaluationRecord& e) {
  nlohmann::ordered_json record{{"step", e.step},
                                {"val_loss", json_number(e.loss)},
                                {"val_perplexity", json_number(e.perplexity())}};
  if (e.standard_error) record["val_loss_error"] = json_number(*e.standard_error);
  if (e.bits_per_byte) record["val_bits_per_byte"] = json_number(*e.bits_per_byte);
  add(record, e.at);
  file().line(record.dump());
}

void MetricsFile::task(const TaskRecord& task) {
  nlohmann::ordered_json record{{"step", task.step}, {"task", task.task}};
  for (const TaskRecord::Metric& metric : task.metrics) {
    record["metrics"][metric.name] = json_number(metric.value);
    if (metric.standard_error) record["metrics"][metric.name + "_error"] = json_number(*metric.standard_error);
  }
  record["examples"] = task.examples;
  add(record, task.at);
  file().line(record.dump());
}

void MetricsFile::event(const EventRecord& event) {
  if (!event.at) return;
  nlohmann::ordered_json record{{"step", event.step}, {"event", event.what}};
  add(record, *event.at);
  file().line(record.dump());
}

void MetricsFile::efficiency(const EfficiencyRecord& e) {
  nlohmann::ordered_json record{{"step", e.step},
                                {"efficiency", e.share()},
                                {"least_step_ms", e.least_ms},
                                {"peak_flops", e.peak_flops},
                                {"copy_bytes_per_second", e.copy_bytes_per_second}};
  add(record, e.at);
  file().line(record.dump());
}

}  // namespace gpt::report
