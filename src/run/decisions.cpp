#include "gpt/run/decisions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"

namespace gpt::run {
namespace {

using Json = nlohmann::ordered_json;

struct Kind {
  const char* what;
  double above, most;  // the values that it can have
  bool is_whole;
  void (*take_effect)(State& state, double value, int64_t schedule_steps);
  std::string (*told)(double value);
};

constexpr int64_t kMostSteps = 1'000'000'000'000;  // as training.max_steps

std::string told_length(double value) {
  return fmt::format("the run ends after step {}", with_commas(std::llround(value)));
}

constexpr std::array kKinds = {
    Kind{.what = kLearningRateFactor,
         .above = 0,
         .most = checkpoint::kMostLearningRateFactor,
         .is_whole = false,
         .take_effect = [](State& state, double value, int64_t) { state.learning_rate_factor = value; },
         .told = [](double value) { return fmt::format("the learning rate is {:.3g} times the schedule's", value); }},
    Kind{.what = kTotalSteps,
         .above = 0,
         .most = kMostSteps,
         .is_whole = true,
         .take_effect = [](State& state, double value,
                           int64_t) { state.course.end_at(std::llround(value), state.step); },
         .told = told_length},
    Kind{.what = kSteps,
         .above = 0,
         .most = kMostSteps,
         .is_whole = true,
         .take_effect =
             [](State& state, double value, int64_t schedule_steps) {
               if (state.course.planned == 0) state.course.end_at(schedule_steps, state.step);  // as it was to be
               state.course.end_at(std::llround(value), state.step);
             },
         .told = told_length},
};

const Kind* find_kind(std::string_view what) {
  const auto* const found =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const Kind& kind) { return what == kind.what; });
  return found == kKinds.end() ? nullptr : found;
}

const Kind& kind_of(const checkpoint::Decision& decision) {
  if (const Kind* const kind = find_kind(decision.what)) return *kind;
  throw Error(ExitCode::checkpoint,
              fmt::format("the run has decided '{}' at step {}, which this version does not know: use the one that "
                          "wrote the checkpoint",
                          decision.what, decision.step));
}

bool is_of_same(const checkpoint::Decision& a, const checkpoint::Decision& b) {
  return a.step == b.step && a.what == b.what;
}

const checkpoint::Decision* find_same(const std::vector<checkpoint::Decision>& decisions,
                                      const checkpoint::Decision& decision) {
  const auto found = std::find_if(decisions.begin(), decisions.end(),
                                  [&](const checkpoint::Decision& other) { return is_of_same(other, decision); });
  return found == decisions.end() ? nullptr : &*found;
}

bool is_earlier(const checkpoint::Decision& a, const checkpoint::Decision& b) { return a.step < b.step; }

// What is wrong with a line; empty: nothing.
std::string fault_of(const Json& line) {
  if (!line.is_object()) return "is no JSON object";
  for (const auto& [key, value] : line.items())
    if (key != "step" && key != "what" && key != "value")
      return fmt::format("has the unknown key '{}'", printable_line(key));
  const auto step = line.find("step"), what = line.find("what"), value = line.find("value");
  if (step == line.end() || !step->is_number_unsigned() || step->get<uint64_t>() > kMostSteps)
    return fmt::format("needs a step, from 0 to {}", kMostSteps);
  const Kind* const kind = what != line.end() && what->is_string() ? find_kind(what->get<std::string>()) : nullptr;
  if (!kind) {
    std::vector<const char*> known;
    for (const Kind& each : kKinds) known.push_back(each.what);
    return fmt::format("needs what is decided: {}", fmt::join(known, ", "));
  }
  const bool is_number = value != line.end() && value->is_number();
  const double number = is_number ? value->get<double>() : 0;
  if (!(number > kind->above && number <= kind->most) || (kind->is_whole && number != std::floor(number)))
    return fmt::format("needs a {} above {} and at most {}", kind->is_whole ? "whole number" : "value", kind->above,
                       kind->most);
  return "";
}

struct Line {
  checkpoint::Decision decision;
  std::string place;  // PATH:LINE
};

checkpoint::Decision parse(std::string_view line, const std::string& place, ExitCode code) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (const std::string fault = fault_of(json); !fault.empty())
    throw Error(code, fmt::format(R"({} {}; a decision is a line such as {{"step": 100, "what": "{}", "value": 0.5}})",
                                  place, fault, kLearningRateFactor));
  return json.get<checkpoint::Decision>();
}

// The lines before are in order, and this one comes behind them.
void require_order(const std::vector<Line>& before, const Line& line, ExitCode code) {
  for (size_t i = before.size(); i-- > 0;) {
    const int64_t step = before[i].decision.step;
    if (step > line.decision.step)
      throw Error(code, fmt::format("{} is of step {}, and a line before it of step {}: put the lines in the "
                                    "order of their steps",
                                    line.place, line.decision.step, step));
    if (step < line.decision.step) return;
    if (is_of_same(before[i].decision, line.decision))
      throw Error(code, fmt::format("{} decides {} of step {} again, after {}: keep one of them", line.place,
                                    line.decision.what, step, before[i].place));
  }
}

// Empty lines count, and say nothing.
std::vector<Line> read_lines(const std::string& path, ExitCode code) {
  const std::string text = read_file(path, code, SizeLimit{"a list of decisions", 16 << 20});
  std::vector<Line> lines;
  std::string_view rest = text;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const std::string_view written = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(written.size() + 1, rest.size()));
    if (written.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = fmt::format("{}:{}", path, number);
    const Line line{parse(written, place, code), place};
    require_order(lines, line, code);
    lines.push_back(line);
  }
  return lines;
}

std::vector<checkpoint::Decision> without_places(const std::vector<Line>& lines) {
  std::vector<checkpoint::Decision> decisions;
  for (const Line& line : lines) decisions.push_back(line.decision);
  return decisions;
}

bool is_there(const std::string& path) {
  std::error_code error;
  const bool is_there = std::filesystem::exists(path, error);
  if (error) throw Error(ExitCode::disk, fmt::format("cannot read {}: {}", path, error.message()));
  return is_there;
}

// What comes later takes the place of what the same step had before.
void add(std::vector<checkpoint::Decision>& decisions, const checkpoint::Decision& decision) {
  const auto same = std::find_if(decisions.begin(), decisions.end(),
                                 [&](const checkpoint::Decision& other) { return is_of_same(other, decision); });
  same == decisions.end() ? decisions.push_back(decision) : void(*same = decision);
}

std::vector<checkpoint::Decision> joined(std::vector<checkpoint::Decision> taken,
                                         const std::vector<checkpoint::Decision>& to_come) {
  for (const checkpoint::Decision& decision : to_come) add(taken, decision);
  return taken;
}

void write_decisions(const std::string& path, const std::vector<checkpoint::Decision>& decisions) {
  AtomicFile file(path);
  for (const checkpoint::Decision& decision : decisions) file.write(Json(decision).dump() + "\n");
  file.commit();
}

// Those of an earlier start that the run will come to again.
std::vector<checkpoint::Decision> own_to_come(const Folder& folder, const StartingPoint& start) {
  std::vector<checkpoint::Decision> own;
  const std::string path = folder.decisions_path();
  if (!is_there(path)) return own;
  for (const auto& [decision, place] : read_lines(path, ExitCode::checkpoint)) {
    const checkpoint::Decision* const same = find_same(start.checkpoint.decisions, decision);
    if (same && (same->value == decision.value || decision.step < start.checkpoint.step)) continue;
    if (decision.step >= start.checkpoint.step) {
      own.push_back(decision);
    } else {
      log::warn(fmt::format("{} is of step {}, and the run, which is at step {}, has not decided that: it is left out",
                            place, decision.step, start.checkpoint.step));
    }
  }
  return own;
}

// `line`, of --replay, is not what the run has decided or will.
[[noreturn]] void refuse_replay(const Line& line, const std::string& why) {
  throw Error(ExitCode::config, fmt::format("{}: --replay cannot take this decision of step {}: {}; leave --replay out "
                                            "to go on with the run, or begin one with another --output_dir",
                                            line.place, line.decision.step, why));
}

}  // namespace

std::vector<checkpoint::Decision> read_decisions(const std::string& path) {
  return without_places(read_lines(path, ExitCode::checkpoint));
}

std::vector<checkpoint::Decision> decisions_to_come(const Folder& folder, const Beginning& begins,
                                                    const std::string& replay) {
  const int64_t step = begins.start ? begins.start->checkpoint.step : 0;
  const std::vector<checkpoint::Decision> taken =
      begins.start ? begins.start->checkpoint.decisions : std::vector<checkpoint::Decision>();
  for (const checkpoint::Decision& decision : taken) (void)kind_of(decision);
  std::vector<checkpoint::Decision> to_come;
  if (begins.start && begins.start->continues) to_come = own_to_come(folder, *begins.start);
  if (!to_come.empty())
    log::info(fmt::format("{} after step {}, of {}, will be taken again", plural(std::ssize(to_come), "decision"),
                          with_commas(step), folder.decisions_path()));
  if (replay.empty()) return to_come;
  const std::vector<checkpoint::Decision> own = joined(taken, to_come);
  for (const Line& line : read_lines(replay, ExitCode::config)) {
    const checkpoint::Decision* const same = find_same(own, line.decision);
    if (same && same->value != line.decision.value)
      refuse_replay(line, fmt::format("the run has decided that {} is {}", same->what, same->value));
    if (!same && line.decision.step < step) refuse_replay(line, fmt::format("the run is at step {} already", step));
    if (!same) to_come.push_back(line.decision);
  }
  std::stable_sort(to_come.begin(), to_come.end(), is_earlier);
  log::info(fmt::format("Replaying {}: {} to come", replay, plural(std::ssize(to_come), "decision")));
  return to_come;
}

void begin_decisions(const Folder& folder, const std::vector<checkpoint::Decision>& taken,
                     const std::vector<checkpoint::Decision>& to_come) {
  const std::string path = folder.decisions_path();
  const std::vector<checkpoint::Decision> now = joined(taken, to_come),
                                          before = is_there(path) ? read_decisions(path)
                                                                  : std::vector<checkpoint::Decision>();
  if (now == before) return;
  std::vector<std::string> lost;
  for (const checkpoint::Decision& decision : before)
    if (std::find(now.begin(), now.end(), decision) == now.end()) lost.push_back(Json(decision).dump());
  if (!lost.empty()) {
    const std::string old = folder.path() + "/decisions.old.jsonl";
    AppendFile(old).line(fmt::format("{}", fmt::join(lost, "\n")));
    log::info(fmt::format("{} that this run does not take moved from {} to {}", plural(std::ssize(lost), "decision"),
                          path, old));
  }
  write_decisions(path, now);
}

std::string describe(const checkpoint::Decision& decision) { return kind_of(decision).told(decision.value); }

bool Decisions::decide(const char* what, double value) {
  checkpoint::Decision decision{.step = state_.step, .what = what, .value = value};
  const auto before = std::find_if(to_come_.begin(), to_come_.end(),
                                   [&](const checkpoint::Decision& other) { return is_of_same(other, decision); });
  if (before != to_come_.end()) {
    decision = *before;
    to_come_.erase(before);
  } else if (!ranks_->first_says(write(decision))) {
    return false;
  }
  take(decision);
  return true;
}

// At the first process alone; what another one answers is not asked for.
bool Decisions::write(const checkpoint::Decision& decision) const {
  if (!ranks_->is_first()) return true;
  std::vector<checkpoint::Decision> all = state_.decisions;
  add(all, decision);
  try {
    write_decisions(folder_.decisions_path(), joined(std::move(all), to_come_));
  } catch (const Error& error) {
    if (error.code() != ExitCode::disk) throw;
    log::warn(error.what());
    return false;
  }
  return true;
}

void Decisions::take(const checkpoint::Decision& decision) {
  kind_of(decision).take_effect(state_, decision.value, schedule_steps_);
  add(state_.decisions, decision);
}

bool Decisions::has_to_come(const char* what) const {
  return std::any_of(to_come_.begin(), to_come_.end(),
                     [what](const checkpoint::Decision& later) { return later.what == what; });
}

std::vector<checkpoint::Decision> Decisions::take_due() {
  const auto first_later = std::find_if(to_come_.begin(), to_come_.end(), [this](const checkpoint::Decision& decision) {
    return decision.step > state_.step;
  });
  const std::vector<checkpoint::Decision> due(to_come_.begin(), first_later);
  to_come_.erase(to_come_.begin(), first_later);
  for (const checkpoint::Decision& decision : due) take(decision);
  return due;
}

std::string why_length_is_fixed(const ScheduleConfig& schedule, const DataConfig& data) {
  if (schedule.has_time()) return "the length of this run is its training.max_time";
  if (!data.stages.empty()) return "data.stages begin at steps that are laid out for the length of this run";
  return "";
}

}  // namespace gpt::run
