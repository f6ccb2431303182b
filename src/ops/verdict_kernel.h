// The arithmetic of a verdict, for the host and for a GPU.
#pragma once

#include <c10/macros/Macros.h>

#include <cstdint>

#include "gpt/ops/verdict.h"

namespace gpt::ops {

// What judge() reads and writes; scale and tokens may be null, and so are the window and its counts where nobody looks for spikes.
struct VerdictScalars {
  const float *loss, *norm, *scale, *tokens;
  float max_norm;
  float *grad_norm, *skipped, *divisor, *spike;
  int64_t *skips, *skips_in_a_row;
  double *loss_sum, *token_sum;
  float* window;  // (2, window_size)
  int64_t window_size;
  int64_t *accepted, *spikes;
  double threshold;
};

inline VerdictScalars scalars_of(const Evidence& evidence, double max_norm, const Verdict& verdict,
                                 const UpdateCounts& counts, const SpikeWatch& watch) {
  const bool is_watched = watch.window.defined();
  return {.loss = evidence.loss.const_data_ptr<float>(),
          .norm = evidence.norm.const_data_ptr<float>(),
          .scale = evidence.scale.defined() ? evidence.scale.const_data_ptr<float>() : nullptr,
          .tokens = evidence.tokens.defined() ? evidence.tokens.const_data_ptr<float>() : nullptr,
          .max_norm = static_cast<float>(max_norm),
          .grad_norm = verdict.grad_norm.data_ptr<float>(),
          .skipped = verdict.skipped.data_ptr<float>(),
          .divisor = verdict.divisor.data_ptr<float>(),
          .spike = verdict.spike.data_ptr<float>(),
          .skips = counts.skipped.data_ptr<int64_t>(),
          .skips_in_a_row = counts.skipped_in_a_row.data_ptr<int64_t>(),
          .loss_sum = counts.loss_sum.data_ptr<double>(),
          .token_sum = counts.token_sum.data_ptr<double>(),
          .window = is_watched ? watch.window.data_ptr<float>() : nullptr,
          .window_size = is_watched ? watch.window.size(1) : 0,
          .accepted = is_watched ? watch.accepted.data_ptr<int64_t>() : nullptr,
          .spikes = is_watched ? watch.spikes.data_ptr<int64_t>() : nullptr,
          .threshold = watch.threshold};
}

// Where the numbers of a row of the window lie: their median, and the median of their distances from it.
struct Level {
  float median, distance;
};
// The least deviations, as shares of the median. Ordinary norms scatter: of 2,000 updates of nanoGPT's model for a CPU six were 1.5 to 2.1
// times the median, and none 2.2 times.
constexpr double kLeastOfLoss = 0.005, kLeastOfNorm = 0.2;
struct Levels {
  Level loss, norm;
};

C10_HOST_DEVICE inline bool has_levels(const VerdictScalars& of) { return of.window && *of.accepted >= of.window_size; }

// The median of an even number of values is the mean of the two in the middle.
C10_HOST_DEVICE inline float middle_of(float low, float high) { return low + (high - low) / 2; }

C10_HOST_DEVICE inline bool is_spike(float value, const Level& level, double threshold, double least_share) {
  constexpr double kOfNormal = 1.4826;  // as judge() in gpt/ops/verdict.h says
  const double spread = kOfNormal * level.distance, least = least_share * level.median;
  return static_cast<double>(value) - level.median > threshold * (spread > least ? spread : least);
}

C10_HOST_DEVICE inline SpikePlace find_spike(const VerdictScalars& of, const Levels& levels, float loss, float norm) {
  const SpikePlace place = is_spike(loss, levels.loss, of.threshold, kLeastOfLoss)   ? kInLoss
                           : is_spike(norm, levels.norm, of.threshold, kLeastOfNorm) ? kInNorm
                                                                                     : kNoSpike;
  if (place == kNoSpike) return place;
  of.spike[1] = place == kInLoss ? loss : norm;
  of.spike[2] = place == kInLoss ? levels.loss.median : levels.norm.median;
  ++*of.spikes;
  return place;
}

// A division of 64 bits would be a call on a GPU, for which registers spill.
C10_HOST_DEVICE inline void add_to_window(const VerdictScalars& of, float loss, float norm) {
  const int64_t place = *of.accepted < of.window_size ? *of.accepted : *of.accepted - of.window_size;
  of.window[place] = loss;
  of.window[of.window_size + place] = norm;
  *of.accepted += *of.accepted + 1 < 2 * of.window_size ? 1 : 1 - of.window_size;
}

// `levels`: of the window, where it has_levels().
C10_HOST_DEVICE inline void judge(const VerdictScalars& of, bool is_compared, const Levels& levels) {
  const float loss = *of.loss, scale = of.scale ? *of.scale : 1, norm = *of.norm / scale;
  const bool is_finite = loss - loss == 0 && norm - norm == 0;  // infinity minus itself is no number
  const SpikePlace spike = is_finite && is_compared ? find_spike(of, levels, loss, norm) : kNoSpike;
  const bool is_accepted = is_finite && spike == kNoSpike;
  const float over = of.max_norm > 0 ? (norm + 1e-6f) / of.max_norm : 1;
  *of.grad_norm = norm;
  *of.skipped = is_accepted ? 0 : 1;
  *of.divisor = scale * (over > 1 ? over : 1);
  *of.skips += is_accepted ? 0 : 1;
  *of.skips_in_a_row = is_accepted ? 0 : *of.skips_in_a_row + 1;
  if (of.window) of.spike[0] = spike;
  if (!is_accepted) return;
  const double tokens = of.tokens ? *of.tokens : 1;
  *of.loss_sum += tokens * loss;
  *of.token_sum += tokens;
  if (of.window) add_to_window(of, loss, norm);
}

}  // namespace gpt::ops
