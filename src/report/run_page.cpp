#include "gpt/report/run_page.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace gpt::report {
namespace {

using nlohmann::ordered_json;

ordered_json page_number(const std::optional<double>& value) {
  return value ? report::page_number(*value) : ordered_json(nullptr);
}

ordered_json points_json(int64_t from, const std::vector<CurvePoint>& points) {
  ordered_json steps = ordered_json::array(), values = ordered_json::array();
  for (const CurvePoint& point : points) {
    steps.push_back(point.step);
    values.push_back(page_number(point.value));
  }
  ordered_json curve{{"steps", std::move(steps)}, {"values", std::move(values)}};
  if (from > 0) curve["from"] = from;
  return curve;
}

std::vector<std::pair<std::string, const Curve*>> curves_of(const RunHistory& history) {
  std::vector<std::pair<std::string, const Curve*>> curves{{"loss", &history.loss},
                                                           {"validation_loss", &history.validation_loss},
                                                           {"bits_per_byte", &history.bits_per_byte},
                                                           {"learning_rate", &history.learning_rate},
                                                           {"grad_norm", &history.grad_norm},
                                                           {"tokens_per_second", &history.tokens_per_second},
                                                           {"mfu", &history.mfu},
                                                           {"peak_memory_mb", &history.peak_memory_mb},
                                                           {"gpu_busy", &history.gpu_busy},
                                                           {"cores_busy", &history.cores_busy},
                                                           {"cores_others", &history.cores_others},
                                                           {"device_memory", &history.device_memory},
                                                           {"seconds", &history.seconds_at_step},
                                                           {"tokens", &history.tokens_at_step}};
  for (const auto& [name, task] : history.tasks) curves.emplace_back(name, &task);
  for (const RunHistory::Layer& layer : history.layers) {
    curves.emplace_back("layer_gradient " + layer.name, &layer.gradient);
    curves.emplace_back("layer_weight " + layer.name, &layer.weight);
    curves.emplace_back("layer_change " + layer.name, &layer.change);
  }
  return curves;
}

ordered_json latest(const StepRecord& step) {
  return {{"loss", page_number(step.loss)},       {"learning_rate", page_number(step.learning_rate)},
          {"step_ms", page_number(step.step_ms)}, {"tokens_per_second", page_number(step.tokens_per_second)},
          {"mfu", page_number(step.mfu)},         {"peak_memory_mb", page_number(step.peak_memory_mb)}};
}

ordered_json evaluation_json(const EvaluationRecord& evaluation) {
  return {{"step", evaluation.step},
          {"loss", page_number(evaluation.loss)},
          {"perplexity", page_number(evaluation.perplexity())},
          {"bits_per_byte", page_number(evaluation.bits_per_byte)}};
}

ordered_json devices_json(const std::vector<DeviceUse>& devices, const ReachedShare& reached) {
  ordered_json verdicts = ordered_json::array(), read = ordered_json::array();
  for (const DeviceVerdict& verdict : judge(devices, reached)) verdicts.push_back(verdict.text);
  for (size_t i = 0; i < devices.size(); ++i) {
    const std::string name = device_name(devices, i), text = to_text(devices[i]);
    if (!text.empty()) read.push_back(name.empty() ? text : name + ": " + text);
  }
  return {{"verdicts", std::move(verdicts)}, {"read", std::move(read)}};
}

ordered_json live_json(const RunPage::Live& live) {
  return {{"state", live.state},
          {"activity", live.activity},
          {"remaining_seconds", page_number(live.remaining_seconds)},
          {"silent_seconds", page_number(live.silent_seconds)},
          {"warnings", live.warnings},
          {"may_be_told", live.may_be_told}};
}

}  // namespace

ordered_json page_number(double value) {
  if (!std::isfinite(value)) return nullptr;
  // More digits than a chart shows would be two thirds of the bytes of all of them.
  const std::string digits = fmt::format("{:.6g}", value);
  double rounded = value;
  std::from_chars(digits.data(), digits.data() + digits.size(), rounded);
  return rounded;
}

// The buckets of a curve are sent again from the one on that held the last step, and all of them once they are wider.
ordered_json SentCurves::next(const RunHistory& history) {
  ordered_json changed = ordered_json::object();
  for (const auto& [name, curve] : curves_of(history)) {
    const auto [sent, is_new] = sent_.try_emplace(name);
    const Sent now{curve->width(), curve->last_step()};
    if (!is_new && sent->second.last_step == now.last_step) continue;
    const bool goes_on = sent->second.width == now.width && sent->second.last_step >= 0;
    const int64_t from = goes_on ? sent->second.last_step / now.width * now.width : 0;
    changed[name] = points_json(from, curve->points(from));
    if (name == "loss") changed["mean_loss"] = points_json(from, curve->means(from));
    sent->second = now;
  }
  return changed;
}

ordered_json page_head(const RunPage& page, const RunHistory& history) {
  ordered_json head{{"name", page.name},
                    {"has_ended", page.has_ended},
                    {"stopped", page.stopped},
                    {"written", static_cast<int64_t>(page.written)},
                    {"silent_seconds", page_number(page.silent_seconds)},
                    {"step", page.step},
                    {"total_steps", page.total_steps},
                    {"epochs", page_number(page.epochs)},
                    {"parameters", page.parameters},
                    {"seconds", page_number(history.seconds)},
                    {"tokens", page_number(history.tokens)},
                    {"machine", page.machine},
                    {"configuration", page.configuration},
                    {"tasks", ordered_json::array()},
                    {"layers", ordered_json::array()}};
  if (page.efficiency) head["efficiency"] = page_number(page.efficiency);
  if (history.last_step) head["latest"] = latest(*history.last_step);
  if (!history.last_devices.empty())
    head["device"] = devices_json(history.last_devices,
                                  {page.efficiency, history.last_step ? history.last_step->mfu : std::nullopt});
  if (history.last_evaluation) head["evaluation"] = evaluation_json(*history.last_evaluation);
  if (history.best_evaluation) head["best"] = evaluation_json(*history.best_evaluation);
  for (const auto& [name, task] : history.tasks) head["tasks"].push_back(name);
  for (const RunHistory::Layer& layer : history.layers) head["layers"].push_back(layer.name);
  if (page.live) head["live"] = live_json(*page.live);
  return head;
}

ordered_json page_samples(const RunHistory& history) {
  ordered_json samples = ordered_json::array();
  for (const SampleRecord& sample : history.samples) samples.push_back({{"step", sample.step}, {"text", sample.text}});
  return samples;
}

ordered_json page_events(const RunHistory& history) {
  ordered_json events = ordered_json::array();
  for (const RunHistory::Event& event : history.events) {
    events.push_back({{"step", event.step}, {"time", event.time}, {"what", event.what}});
    if (event.is_routine) events.back()["times"] = event.times;
  }
  return events;
}

ordered_json whole_page(const RunPage& page, const RunHistory& history) {
  ordered_json whole = page_head(page, history);
  whole["curves"] = SentCurves().next(history);
  whole["samples"] = page_samples(history);
  whole["events"] = page_events(history);
  return whole;
}

std::string script_safe(const ordered_json& value) {
  const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/false, ordered_json::error_handler_t::replace);
  std::string safe;
  safe.reserve(text.size() + text.size() / 16);
  for (std::string_view rest = text; !rest.empty();) {
    const bool is_separator = rest.starts_with("\u2028") || rest.starts_with("\u2029");
    if (is_separator) {
      safe += rest.starts_with("\u2028") ? "\\u2028" : "\\u2029";
    } else if (rest.front() == '<') {
      safe += "\\u003c";
    } else {
      safe += rest.front();
    }
    rest.remove_prefix(is_separator ? 3 : 1);
  }
  return safe;
}

}  // namespace gpt::report
