#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "gpt/checkpoint/remembered.h"
#include "gpt/core/error.h"
#include "parts.h"

namespace gpt::checkpoint {
namespace {

constexpr double kAnything = std::numeric_limits<double>::infinity(), kAboveZero = std::numeric_limits<double>::min(),
                 kMost = 1e12;  // of steps and validations, as training.warmup_steps

struct Row {
  const char* place;    // in checkpoint.json, below "values", and in the dict that Python sees
  const char* meaning;  // for people
  const char* without =
      nullptr;           // what a checkpoint means that has no such value: then it is not read; null: each has one
  bool is_saved = true;  // beside a std::optional, which is saved where there is something in it
  double least = 0, most = kAnything;  // of a number
};

// All values, stated once for writing (a const Checkpoint), reading, checking and describing them: `visit` is called with the row of each and
// with the value itself. Their order is that of the file.
template <typename AnyCheckpoint, typename Visitor>
void visit_progress(AnyCheckpoint& c, Visitor&& visit) {
  const auto step = static_cast<double>(c.step), skipped = static_cast<double>(c.skipped_steps);
  visit({"/step", "completed updates, including skipped ones"}, c.step);
  visit({.place = "/best_val_loss",
         .meaning = "the lowest validation loss; infinite before the first validation",
         .least = -kAnything},
        c.best_val_loss);
  visit({.place = "/evaluated_step", .meaning = "the last step with a complete validation", .most = step},
        c.evaluated_step);
  visit({"/evaluations_since_best", "validations since the best one", "0"}, c.evaluations_since_best);
  visit({"/eval_sequences", "sequences of a validation with `eval_batches: auto`; 0 before the first one",
         "validations read neighbouring sequences"},
        c.eval_sequences);
  visit({.place = "/skipped_steps", .meaning = "updates that were not applied", .most = step}, c.skipped_steps);
  visit({.place = "/consecutive_skipped_steps", .meaning = "of these, the last ones in a row", .most = skipped},
        c.consecutive_skipped_steps);
  visit({.place = "/spike_count",
         .meaning = "of the skipped updates, those that were a spike (`on_divergence`)",
         .without = "nobody looked for spikes",
         .most = step},
        c.spikes);
}

template <typename AnyCheckpoint, typename Visitor>
void visit_course(AnyCheckpoint& c, Visitor&& visit) {
  const auto step = static_cast<double>(c.step);
  const bool went_back = c.rollbacks > 0;
  visit({"/rollback/count", "how often the run went back to a checkpoint", "0", went_back, 0, step}, c.rollbacks);
  visit({"/rollback/learning_rate_factor", "what the schedule's learning rate is multiplied by", "1",
         went_back || c.learning_rate_factor != 1, kAboveZero, kMostLearningRateFactor},
        c.learning_rate_factor);
  visit({.place = "/rollback/proven_step",
         .meaning = "the checkpoint to go back to, once `spike_window` updates without a spike have followed it",
         .without = "there is none",
         .most = step},
        c.proven_step);
  visit({.place = "/rollback/waiting_step",
         .meaning = "the checkpoint that these updates follow now",
         .without = "there is none",
         .most = step},
        c.waiting_step);
  visit({.place = "/schedule/warmup_steps",
         .meaning = "the warm-up of a run along `wsd`",
         .without = "it follows from the length of the run",
         .most = kMost},
        c.warmup_steps);
  const bool has_course = c.course.planned > 0;
  visit({"/schedule/planned_steps",
         "the updates that the schedule of a run with `max_time`, or that was told another length, is laid out for",
         "the length of the run is that of its configuration", has_course, 0, kMost},
        c.course.planned);
  visit({"/schedule/total_steps", "those that it ends after, as was decided last", "0", has_course, 0, kMost},
        c.course.total);
  visit({"/schedule/since_step", "the step of that decision", "0", has_course, 0, step}, c.course.since);
  visit({"/schedule/position", "and where the run was on its schedule then, in planned updates", "0", has_course, 0,
         static_cast<double>(c.course.planned)},
        c.course.position);
  visit({"/schedule/seconds_spent", "the time that the run has taken of `max_time`", "0", has_course, 0},
        c.seconds_spent);
  visit({"/decisions", "what was decided on the way, each a `step`, a `what` and a `value`", "nothing was",
         !c.decisions.empty()},
        c.decisions);
}

template <typename AnyCheckpoint, typename Visitor>
void visit_plateau(AnyCheckpoint& c, Visitor&& visit) {
  const bool has_plateau = c.config.training.schedule.lr_schedule == LrSchedule::plateau;
  visit({"/plateau/best", "`lr_schedule: plateau`: the last validation loss that was an improvement",
         "there was none yet", has_plateau, -kAnything},
        c.plateau.best);
  visit({"/plateau/factor", "what the learning rate of the configuration is multiplied by", "1", has_plateau, 0, 1},
        c.plateau.factor);
  visit({"/plateau/without_improvement", "validations without an improvement", "0", has_plateau, 0,
         static_cast<double>(c.step)},
        c.plateau.without_improvement);
  visit({"/plateau/cooling_down", "validations to come that do not count", "0", has_plateau, 0, kMost},
        c.plateau.cooling_down);
}

template <typename AnyCheckpoint, typename Visitor>
void visit_surroundings(AnyCheckpoint& c, Visitor&& visit) {
  visit({"/chosen_products", "how a GPU computes its matrix products", "they are measured again"}, c.chosen_products);
  visit({"/recording_failed", "the step cannot be recorded as CUDA graphs here", "it can, or nobody has tried",
         c.recording_failed},
        c.recording_failed);
  visit({"/teacher", "the hash of the weights of `distill_from`", "there is no teacher"}, c.teacher);
  visit(
      {"/base",
       "the model that adapters go with, whose weights are not in the file: its `path`, and the `hash` and the `stamp` of its files",
       "the file has all weights"},
      c.base);
  visit({"/data/epoch", "the place in the data: passes that are complete"}, c.data_round);
  visit({"/data/sample", "and sequences since then"}, c.data_sample);
  visit({"/data/fingerprint", "the hash of the tokens"}, c.data_fingerprint);
  visit({.place = "/sample_start",
         .meaning = "the token that a text without a prompt begins behind",
         .without = "it is not known",
         .least = -kAnything},
        c.sample_start);
  visit({"/text_format", "which tokens begin and end a text, and the template of chats", "the tokenizer's names tell"},
        c.text_format);
  visit({"/started_by", "what `resume_from` said when the run began", "auto"}, c.started_by);
  visit({"/environment", "the build and the machine, for a line where they differ"}, c.environment);
}

template <typename AnyCheckpoint, typename Visitor>
void visit_values(AnyCheckpoint& checkpoint, Visitor&& visit) {
  visit_progress(checkpoint, visit);
  visit_course(checkpoint, visit);
  visit_plateau(checkpoint, visit);
  visit_surroundings(checkpoint, visit);
}

struct WriteValue {
  Json& values;

  template <typename Value>
  void operator()(const Row& row, const Value& value) const {
    if (row.is_saved) values[Json::json_pointer(row.place)] = value;
  }
  template <typename Value>
  void operator()(const Row& row, const std::optional<Value>& value) const {
    if (value) (*this)(row, *value);
  }
};

struct ReadValue {
  const Json& values;

  template <typename Value>
  void operator()(const Row& row, Value& value) const {
    const Json::json_pointer place(row.place);
    if (!row.without || values.contains(place)) read(values.at(place), value);
  }
  static void read(const Json& from, int64_t& value) { value = count_of(from); }
  template <typename Value>
  static void read(const Json& from, std::optional<Value>& value) {
    read(from, value.emplace());
  }
  static void read(const Json& from, double& value) {
    value = from.is_null() ? std::numeric_limits<double>::infinity() : from.get<double>();
  }
  template <typename Value>
  static void read(const Json& from, Value& value) {
    value = from.get<Value>();
  }
};

struct CheckValue {
  int64_t step;

  template <typename Value>
  void operator()(const Row& row, const Value& value) const {
    if constexpr (std::is_same_v<Value, int64_t> || std::is_same_v<Value, double>) {
      const auto number = static_cast<double>(value);
      if (number >= row.least && number <= row.most) return;
      const std::string least = row.least == kAboveZero ? "above 0" : fmt::format("{} or more", row.least);
      throw Error(ExitCode::checkpoint, fmt::format("checkpoint.json: {} is {}, and at step {} it can be {}, up to {}",
                                                    row.place + 1, value, step, least, row.most));
    }
  }
  template <typename Value>
  void operator()(const Row& row, const std::optional<Value>& value) const {
    if (value) (*this)(row, *value);
  }
  void operator()(const Row& /*row*/, const std::vector<Decision>& decisions) const {
    int64_t before = 0;
    for (const Decision& decision : decisions) {
      if (decision.step < before || decision.step > step)
        throw Error(ExitCode::checkpoint,
                    fmt::format("checkpoint.json: at step {} there is a decision of step {} after "
                                "one of step {}",
                                step, decision.step, before));
      before = decision.step;
    }
  }
};

struct DescribeValue {
  std::string& table;

  template <typename Value>
  void operator()(const Row& row, const Value& /*value*/) const {
    std::string place(row.place + 1);
    std::replace(place.begin(), place.end(), '/', '.');
    table += fmt::format("| `{}` | {} | {} |\n", place, row.meaning, row.without ? row.without : "");
  }
};

}  // namespace

int64_t count_of(const Json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
    throw Error(ExitCode::checkpoint, fmt::format("{} is not a count", value.dump()));
  }
  return value.get<int64_t>();
}

Json values_of(const Checkpoint& checkpoint) {
  Json values;
  visit_values(checkpoint, WriteValue{values});
  return values;
}

void place_values(Checkpoint& checkpoint, const Json& values) { visit_values(checkpoint, ReadValue{values}); }

void require_valid_values(const Checkpoint& checkpoint) { visit_values(checkpoint, CheckValue{checkpoint.step}); }

std::string describe_values() {
  std::string table = "| value | what it is | without it |\n| --- | --- | --- |\n";
  const Checkpoint any;
  visit_values(any, DescribeValue{table});
  return table;
}

}  // namespace gpt::checkpoint

namespace gpt::checkpoint {

void to_json(nlohmann::ordered_json& json, const Decision& decision) {
  json = {{"step", decision.step}, {"what", decision.what}, {"value", decision.value}};
}

void from_json(const nlohmann::ordered_json& json, Decision& decision) {
  decision = {checkpoint::count_of(json.at("step")), json.at("what").get<std::string>(),
              json.at("value").get<double>()};
}

}  // namespace gpt::checkpoint
