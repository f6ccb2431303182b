// What the keys of the data and the parts of a run in stages ask of each other and of the run's length.
#include <fmt/format.h>

#include <algorithm>

#include "gpt/core/format.h"
#include "rule.h"

namespace gpt::config {
namespace {

int64_t steps_of(const TrainingConfig& training) { return training.schedule.max_steps.value_or(kDefaultMaxSteps); }

bool is_in_stages(const Config& config) {
  return !config.data.stages.empty() || config.data.schedule != DataSchedule::constant;
}

bool counts_epochs(const TrainingConfig& training) {
  const auto in_epochs = [](const Interval& interval) { return interval.unit == Interval::Unit::epochs; };
  const CadenceConfig& cadence = training.cadence;
  return training.schedule.epochs || in_epochs(cadence.eval_interval) || in_epochs(cadence.checkpoint_interval) ||
         in_epochs(cadence.sample_interval);
}

// The first stage whose sequences are longer than that.
const Stage* longer_stage(const Config& config, int64_t length) {
  for (const Stage& stage : config.data.stages)
    if (stage.block_size.value_or(0) > length) return &stage;
  return nullptr;
}
const Stage* longer_stage(const Config& config) { return longer_stage(config, config.model.block_size); }

const Stage* wider_stage(const Config& config) {
  for (const Stage& stage : config.data.stages)
    if (stage.attention_window.value_or(0) > config.model.attention_window) return &stage;
  return nullptr;
}

// The sources that are set, beyond the one that may be.
std::vector<Cure> keep_one_source(const Config& config) {
  std::vector<std::string> sources;
  if (!config.data.text.empty()) sources.emplace_back("data.text");
  if (config.data.dataset != DatasetName::none) sources.emplace_back("data.dataset");
  if (!config.data.bin.empty()) sources.emplace_back("data.bin");
  std::vector<Cure> cures;
  for (const std::string& kept : sources) {
    Cure others;
    for (const std::string& source : sources)
      if (source != kept) others.push_back({source, std::nullopt});
    cures.push_back(std::move(others));
  }
  return cures;
}

}  // namespace

std::vector<RefusalRule> data_rules() {
  return {
      {.keys = {"data.dataset", "data.bin", "data.text"},
       .when = [](const Config& c, const Facts&) { return keep_one_source(c).size() > 1; },
       .why = "only one of data.text, data.dataset and data.bin can be set",
       .cures = keep_one_source,
       .advice = "keep one of them"},
      {.keys = {"data.metadata", "data.bin"},
       .when = [](const Config& c, const Facts&) { return !c.data.metadata.empty() && c.data.bin.empty(); },
       .why = "metadata describes a bin",
       .cures = {leave_out("data.metadata")},
       .advice = "set data.bin too, or leave metadata out"},
      {.keys = {"data.validation_bin", "data.bin"},
       .when = [](const Config& c, const Facts&) { return !c.data.validation_bin.empty() && c.data.bin.empty(); },
       .why = "validation_bin belongs to a bin",
       .cures = {leave_out("data.validation_bin")},
       .advice = "set data.bin too, or leave validation_bin out"},
      {.keys = {"data.max_chars", "data.bin"},
       .when = [](const Config& c, const Facts&) { return c.data.max_chars > 0 && !c.data.bin.empty(); },
       .why = "max_chars limits the characters of a text",
       .cures = {leave_out("data.max_chars"), leave_out("data.bin")},
       .advice = "leave it out for a bin"},
      {.keys = {"data.prefetch_factor", "data.num_workers"},
       .when = [](const Config& c,
                  const Facts&) { return c.data.num_workers.value_or(0) > 0 && c.data.prefetch_factor == 0; },
       .why =
           [](const Config& c) {
             return fmt::format("with prefetch_factor 0, {} workers would prepare nothing", *c.data.num_workers);
           },
       .cures = {set_to("data.prefetch_factor", "2"), set_to("data.num_workers", "0")}},
      {.keys = {"data.document_mask", "device"},
       .when = [](const Config& c, const Facts& facts) { return c.data.document_mask && facts.is_cpu == false; },
       .why = "document_mask is computed on a CPU alone so far",
       .cures = {set_to("data.document_mask", "false"), set_to("device", "cpu")}},
      {.keys = {"data.document_mask", "data.packing"},
       .when =
           [](const Config& c, const Facts& facts) {
             return c.data.document_mask && !c.data.packing && facts.has_conversations == true;
           },
       .why =
           "document_mask would cut a conversation where the end-of-text token ends a message, and without packing there is none "
           "beside it",
       .cures = {set_to("data.document_mask", "false"), set_to("data.packing", "true")}},
      {.keys = {"data.packing", "device"},
       .when = [](const Config& c,
                  const Facts& facts) { return packs_conversations(c, facts) && facts.is_cpu == false; },
       .why = "packing keeps conversations apart by document masks, which are computed on a CPU alone so far",
       .cures = {set_to("data.packing", "false"), set_to("device", "cpu")}},
  };
}

std::vector<RefusalRule> stage_rules() {
  return {
      {.keys = {"data.stages", "data.schedule", "training.epochs", "training.eval_interval",
                "training.checkpoint_interval", "training.sample_interval"},
       .when = [](const Config& c, const Facts&) { return is_in_stages(c) && counts_epochs(c.training); },
       .why = "a run in stages is measured in steps, since its files have no epoch in common",
       .cures = {leave_out("training.epochs"), leave_out("training.eval_interval"),
                 leave_out("training.checkpoint_interval"), leave_out("training.sample_interval"),
                 set_to("data.schedule", "constant"), set_to("data.stages", "[]")},
       .advice = "set max_steps, and intervals in steps"},
      {.keys = {"data.stages", "training.max_steps"},
       .when = [](const Config& c,
                  const Facts&) { return !c.data.stages.empty() && c.data.stages.back().from >= steps_of(c.training); },
       .why =
           [](const Config& c) {
             return fmt::format("the last stage begins at step {}, but the run has only {}", c.data.stages.back().from,
                                steps_of(c.training));
           },
       .cures =
           [](const Config& c) {
             return std::vector<Cure>{
                 set_to("training.max_steps", fmt::format("{}", std::max<int64_t>(2, 2 * c.data.stages.back().from)))};
           },
       .advice = "raise max_steps, or let the stage begin earlier"},
      {.keys = {"data.stages", "model.block_size"},
       .when = [](const Config& c, const Facts&) { return longer_stage(c) != nullptr; },
       .why =
           [](const Config& c) {
             const Stage& stage = *longer_stage(c);
             return fmt::format(
                 "the stage from step {} has sequences of {} tokens, more than the model's block_size {}", stage.from,
                 *stage.block_size, c.model.block_size);
           },
       .cures = [](const Config& c) { return set_to_each("model.block_size", {*longer_stage(c)->block_size}); }},
      {.keys = {"data.stages", "training.sequence_length"},
       .when = [](const Config& c, const Facts&) { return longer_stage(c, c.sequence_length()) != nullptr; },
       .why =
           [](const Config& c) {
             const Stage& stage = *longer_stage(c, c.sequence_length());
             return fmt::format("the stage from step {} has sequences of {} tokens, more than sequence_length {}",
                                stage.from, *stage.block_size, c.sequence_length());
           },
       .cures =
           [](const Config& c) {
             return either(set_to_each("training.sequence_length", {*longer_stage(c, c.sequence_length())->block_size}),
                           {set_to("data.stages", "[]")});
           }},
      {.keys = {"data.stages", "model.attention_window"},
       .when = [](const Config& c, const Facts&) { return wider_stage(c) != nullptr; },
       .why =
           [](const Config& c) {
             const Stage& stage = *wider_stage(c);
             return fmt::format(
                 "the stage from step {} has a window of {} positions, more than the model's attention_window {}; a "
                 "stage may only narrow it",
                 stage.from, *stage.attention_window, c.model.attention_window);
           },
       .cures =
           [](const Config& c) { return set_to_each("model.attention_window", {*wider_stage(c)->attention_window}); }},
  };
}

}  // namespace gpt::config
