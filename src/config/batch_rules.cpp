// How the sequences of an update are divided into micro-steps.
#include <fmt/format.h>

#include "rule.h"

namespace gpt::config {
namespace {

bool chooses_batch(const Config& config) { return config.training.batch_size == 0; }

bool has_total(const Config& config) { return !chooses_batch(config) && config.training.total_batch_size.has_value(); }

// A stage of shorter sequences has more of them in a micro-batch: rounded, their number would depend on the choice.
const Stage* uneven_stage(const Config& config) {
  const int64_t length = config.sequence_length();
  for (const Stage& stage : config.data.stages)
    if (length % stage.block_size.value_or(length) != 0) return &stage;
  return nullptr;
}

}  // namespace

std::vector<RefusalRule> batch_rules() {
  return {
      {.keys = {"training.sequence_length", "model.block_size"},
       .when = [](const Config& c, const Facts&) { return c.sequence_length() > c.model.block_size; },
       .why =
           [](const Config& c) {
             return fmt::format("sequence_length {} is more than the model sees at once (block_size {})",
                                c.sequence_length(), c.model.block_size);
           },
       .cures = {leave_out("training.sequence_length")},
       .advice = "lower sequence_length or leave it out"},
      {.keys = {"training.gradient_accumulation_steps", "training.batch_size"},
       .when = [](const Config& c,
                  const Facts&) { return chooses_batch(c) && c.training.gradient_accumulation_steps != 1; },
       .why =
           [](const Config& c) {
             return fmt::format(
                 "batch_size auto chooses the number of micro-steps too, but gradient_accumulation_steps is {}",
                 c.training.gradient_accumulation_steps);
           },
       .cures = {leave_out("training.gradient_accumulation_steps"), leave_out("training.batch_size")},
       .advice = "leave that out, or set batch_size to a number"},
      {.keys = {"training.batch_size", "training.total_batch_size"},
       .when = [](const Config& c, const Facts&) { return chooses_batch(c) && !c.training.total_batch_size; },
       .why =
           "batch_size auto needs total_batch_size, the sequences per update, because they decide how the run learns",
       .cures = {set_to("training.total_batch_size", "64"), leave_out("training.batch_size")},
       .advice = "set total_batch_size, such as 64, or batch_size to a number"},
      {.keys = {"data.stages", "training.batch_size"},
       .when = [](const Config& c, const Facts&) { return chooses_batch(c) && uneven_stage(c) != nullptr; },
       .why =
           [](const Config& c) {
             const Stage& stage = *uneven_stage(c);
             return fmt::format(
                 "with batch_size auto the sequences of a stage must divide those of the run, of {} tokens, but the stage "
                 "from step {} has {}",
                 c.sequence_length(), stage.from, *stage.block_size);
           },
       .cures = {leave_out("training.batch_size"), leave_out("data.stages")},
       .advice = "set batch_size to a number"},
      {.keys = {"training.batch_size", "training.total_batch_size"},
       .when = [](const Config& c,
                  const Facts&) { return has_total(c) && *c.training.total_batch_size % c.training.batch_size != 0; },
       .why =
           [](const Config& c) {
             return fmt::format("total_batch_size {} is not divisible by batch_size {}", *c.training.total_batch_size,
                                c.training.batch_size);
           },
       .cures =
           [](const Config& c) {
             const int64_t total = *c.training.total_batch_size, size = c.training.batch_size;
             return either(set_to_each("training.total_batch_size",
                                       nearest(total, [&](int64_t n) { return n % size == 0; })),
                           set_to_each("training.batch_size",
                                       nearest(size, [&](int64_t n) { return n <= total && total % n == 0; })));
           }},
      {.keys = {"training.gradient_accumulation_steps", "training.total_batch_size"},
       .when =
           [](const Config& c, const Facts&) {
             const TrainingConfig& t = c.training;
             return has_total(c) && t.batch_size * t.gradient_accumulation_steps != *t.total_batch_size;
           },
       .why =
           [](const Config& c) {
             const TrainingConfig& t = c.training;
             return fmt::format("batch_size {} times gradient_accumulation_steps {} is {}, not total_batch_size {}",
                                t.batch_size, t.gradient_accumulation_steps,
                                t.batch_size * t.gradient_accumulation_steps, *t.total_batch_size);
           },
       .cures =
           [](const Config& c) {
             const TrainingConfig& t = c.training;
             return either(set_to_each("training.gradient_accumulation_steps", {*t.total_batch_size / t.batch_size}),
                           set_to_each("training.total_batch_size", {t.batch_size * t.gradient_accumulation_steps}));
           }},
  };
}

}  // namespace gpt::config
