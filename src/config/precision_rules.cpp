// In which numbers a run computes, and what does not go with them.
#include <fmt/format.h>

#include "gpt/core/format.h"
#include "rule.h"

namespace gpt::config {
namespace {

constexpr const char *kAmp = "training.use_amp", *kDtype = "training.dtype", *kMode = "training.amp_mode",
                     *kQuantized = "training.quantized_forward";

// Whether ATen's autocast casts what products take, as far as the configuration or the device tells.
bool has_autocast(const Config& config, const Facts& facts) {
  const PrecisionConfig& precision = config.training.precision;
  const bool may_have_16_bits =
      precision.use_amp && precision.dtype != Dtype::float32 && precision.dtype != Dtype::tf32;
  return (precision.amp_mode == AmpMode::autocast && may_have_16_bits) || facts.autocasts();
}

bool has_blocks_left(const Config& config) { return 2 * config.training.quantized.skip < config.model.n_layer; }

std::vector<RefusalRule> sixteen_bit_rules() {
  return {
      {.keys = {kAmp, kDtype},
       .when =
           [](const Config& c, const Facts&) {
             const Dtype dtype = c.training.precision.dtype;
             return !c.training.precision.use_amp && (dtype == Dtype::bfloat16 || dtype == Dtype::float16);
           },
       .why = "use_amp false means float32 (or tf32), but dtype is a 16-bit type",
       .cures = {set_to(kAmp, "true"), set_to(kDtype, "float32")}},
      {.keys = {kMode, kDtype},
       .when =
           [](const Config& c, const Facts&) {
             return c.training.precision.dtype == Dtype::float16 &&
                    c.training.precision.amp_mode == AmpMode::end_to_end;
           },
       .why = "dtype float16 has too small a range for amp_mode end_to_end",
       .cures = {set_to(kMode, "auto"), set_to(kDtype, "bfloat16")}},
      {.keys = {"training.master_weights", kDtype, kMode},
       .when = [](const Config& c,
                  const Facts& facts) { return !c.training.precision.master_weights && facts.is_end_to_end == false; },
       .why = "master_weights false needs a run that computes in bfloat16 end to end",
       .cures = {{{kDtype, "bfloat16"}, {kMode, "end_to_end"}}, set_to("training.master_weights", "true")}},
      {.keys = {kDtype, "device"},
       .when = [](const Config& c,
                  const Facts& facts) { return facts.is_cpu == true && c.training.precision.dtype == Dtype::float16; },
       .why = "dtype float16 is for CUDA devices only",
       .cures = {set_to(kDtype, "bfloat16"), set_to(kDtype, "float32"), set_to("device", "cuda")}},
      // Autocast's copies would be those of all blocks, or be there once for each micro-batch on its way through the stages.
      {.keys = {"distributed.zero", kMode},
       .when =
           [](const Config& c, const Facts& facts) {
             return c.distributed.zero > 2 && facts.data_processes.value_or(1) > 1 && facts.autocasts();
           },
       .why = "zero 3 does not go with autocast, which keeps a copy of all weights in 16 bits",
       .cures = {{{kDtype, "bfloat16"}, {kMode, "end_to_end"}},
                 set_to(kAmp, "false"),
                 set_to("distributed.zero", "2")}},
      {.keys = {"distributed.pipeline_parallel", kMode},
       .when = [](const Config& c,
                  const Facts& facts) { return c.distributed.pipeline_parallel > 1 && has_autocast(c, facts); },
       .why =
           "pipeline_parallel does not go with autocast, which keeps a copy of all weights for each micro-batch on its way",
       .cures = {{{kDtype, "bfloat16"}, {kMode, "end_to_end"}},
                 set_to(kAmp, "false"),
                 set_to("distributed.pipeline_parallel", "1")}},
  };
}

std::vector<RefusalRule> eight_bit_rules() {
  return {
      {.keys = {kQuantized, "training.use_compile"},
       .when = [](const Config& c,
                  const Facts&) { return c.training.quantized.is_on() && !c.training.execution.use_compile; },
       .why = "quantized_forward needs the operators of use_compile",
       .cures = {set_to("training.use_compile", "true"), set_to(kQuantized, "none")}},
      {.keys = {kQuantized, kMode},
       .when = [](const Config& c,
                  const Facts& facts) { return c.training.quantized.is_on() && has_autocast(c, facts); },
       .why = "quantized_forward does not go with autocast, which casts what products take",
       .cures = {set_to(kMode, "auto"), set_to(kAmp, "false"), set_to(kQuantized, "none")}},
      {.keys = {kQuantized, "device"},
       .when =
           [](const Config& c, const Facts& facts) {
             return facts.is_cpu == true && c.training.quantized.type == QuantizedForward::fp8;
           },
       .why = "quantized_forward fp8 needs a GPU",
       .cures = {set_to(kQuantized, "none"), set_to("device", "cuda")}},
      {.keys = {kQuantized, kDtype},
       .when =
           [](const Config& c, const Facts& facts) {
             return c.training.quantized.type == QuantizedForward::fp8 && facts.is_end_to_end == false;
           },
       .why = "quantized_forward fp8 gives bfloat16, in which this run does not compute",
       .cures = {{{kDtype, "bfloat16"}, {kMode, "end_to_end"}}, set_to(kQuantized, "none")}},
      {.keys = {kQuantized, "distributed.zero"},
       .when = [](const Config& c, const Facts&) { return c.training.quantized.is_on() && c.distributed.zero > 2; },
       .why = "quantized_forward keeps weights in 8 bits, which zero 3 divides",
       .cures = {set_to("distributed.zero", "2"), set_to(kQuantized, "none")}},
      {.keys = {kQuantized, "distributed.tensor_parallel"},
       .when = [](const Config& c,
                  const Facts&) { return c.training.quantized.is_on() && c.distributed.tensor_parallel > 1; },
       .why = "quantized_forward rounds whole rows, which tensor_parallel divides",
       .cures = {set_to("distributed.tensor_parallel", "1"), set_to(kQuantized, "none")}},
      {.keys = {"training.quantized_forward_skip", kQuantized, "model.n_layer"},
       .when = [](const Config& c, const Facts&) { return c.training.quantized.is_on() && !has_blocks_left(c); },
       .why =
           [](const Config& c) {
             return fmt::format("quantized_forward leaves out {} at each end, and the model has {}",
                                plural(c.training.quantized.skip, "block"), plural(c.model.n_layer, "block"));
           },
       .cures =
           [](const Config& c) {
             return either(set_to_each("training.quantized_forward_skip", {(c.model.n_layer - 1) / 2}),
                           {set_to(kQuantized, "none")});
           }},
  };
}

}  // namespace

std::vector<RefusalRule> precision_rules() {
  std::vector<RefusalRule> rules = sixteen_bit_rules();
  for (RefusalRule& rule : eight_bit_rules()) rules.push_back(std::move(rule));
  return rules;
}

}  // namespace gpt::config
