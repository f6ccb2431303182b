#include "gpt/diagnose/speed_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpt/core/format.h"
#include "gpt/plan/model_checks.h"

namespace gpt::diagnose {
namespace {

// Shares of the speed of large products that steps reach: below the first a step is slow, above the second fast.
constexpr double kSlow = 0.25, kFast = 0.5;

struct Cause {
  std::string what, fix;  // without a fix it lies in the run itself
};

// The first that applies, the surest and most harmful first.
Cause likely_cause(const UpdateConfig& config, const device::DeviceInfo& device, const device::Precision& precision,
                   const SpeedFacts& facts) {
  const bool cuda = device.device.is_cuda();
  const ModelConfig& model = config.model;
  const ExecutionConfig& execution = config.training.execution;
  const int64_t tokens = config.training.batch_size * config.sequence_length();
  constexpr int64_t kNarrow = 256, kFewTokens = 512, kFewOnAGpu = 4096;
  if (const auto cores = static_cast<double>(facts.cores); !cuda && facts.load > 0.5 * cores)
    return {fmt::format("other programs take {:.1f} of the {}", std::min(facts.load, cores),
                        plural(facts.cores, "core")),
            "stop them, or measure again when they are done"};
  if (!cuda && facts.is_told_threads && facts.threads < facts.cores)
    return {fmt::format("{} of {} work on it", facts.threads, plural(facts.cores, "core")), "set threads: 0"};
  if (!cuda && precision.compute_type() != at::kFloat && !device.bfloat16)
    return {device::bfloat16_obstacle(device), "set training.dtype: auto"};
  if (facts.attention.starts_with("math"))
    return {fmt::format("attention is unfused ({})", facts.attention), "set training.attention: auto"};
  if (!execution.use_compile) return {"use_compile is off", "set training.use_compile: true"};
  if (tokens < (cuda ? kFewOnAGpu : kFewTokens))
    return {fmt::format("{} at a time keep {} waiting", plural(tokens, "token"), cuda ? "the GPU" : "the cores"),
            "raise training.batch_size as far as memory allows"};
  if (cuda && execution.compile_mode == CompileMode::standard && model.n_embd < 2 * kNarrow)
    return {"launching the kernels of a model this small may take longer than running them",
            "set training.compile_mode: auto"};
  if (model.n_embd < kNarrow)
    return {fmt::format("products of width {} are too small to be as fast as large ones", model.n_embd), ""};
  if (execution.gradient_checkpointing >= GradientCheckpointing::selective)
    return {"gradient checkpointing computes products twice", ""};
  return {"what takes the time is not known", "take the step apart with gpt-bench profile, with the same options"};
}

}  // namespace

plan::Check check_speed(const UpdateConfig& config, const device::DeviceInfo& device,
                        const device::Precision& precision, const SpeedFacts& facts) {
  const double flops = plan::flops_per_step(config.model, config.training).all() / facts.step_seconds;
  const double share = flops / facts.product_speed;
  std::string detail =
      fmt::format("{}/s, {:.0f} % of what matrix products reach here", format_flops(flops), 100 * share);
  if (facts.peak) detail += fmt::format(" and {:.0f} % of the card's peak", 100 * flops / *facts.peak);
  plan::Check check;
  if (share >= kSlow) {
    check = plan::passed("speed", fmt::format("{}: {}", detail, share >= kFast ? "good" : "usual"));
  } else {
    const Cause cause = likely_cause(config, device, precision, facts);
    detail += fmt::format(": slow, since {}", cause.what);
    check = cause.fix.empty() ? plan::passed("speed", detail) : plan::warned("speed", detail, cause.fix);
  }
  check.values = {{"flops_per_second", flops},
                  {"product_flops_per_second", facts.product_speed},
                  {"share_of_products", share}};
  if (facts.peak) check.values.emplace_back("share_of_peak", flops / *facts.peak);
  return check;
}

}  // namespace gpt::diagnose
