// What a processor's bfloat16 is worth. A flag says whether it has instructions for it, not how fast they are: AMD's Zen 5 multiplies
// twice as many bfloat16 values in a cycle as float32 values, Intel's Emerald Rapids half as many, unless AMX does it, which virtual
// machines often hide.
#pragma once

namespace gpt::device {

enum class CpuBfloat16 {
  absent,  // emulated, fourteen to twenty times slower than float32
  slow,    // instructions that multiply hardly more values in a cycle than float32's, or fewer
  fast,
};

// The speed of bfloat16 in matrix products on this processor. The first call takes a tenth of a millisecond.
CpuBfloat16 cpu_bfloat16();

// How many times as many products AVX512_BF16's dot products compute as float32's multiply-add in the same time; 0 where there are
// none. Measured once in a process, on the calling thread, by alternating runs of some microseconds, so that other programs hardly
// affect the ratio.
double dot_product_gain();

// A border that is far from what processors have (a half, one, two), so that each run of a processor is on the same side of it.
inline constexpr double kWorthwhileGain = 1.25;
inline bool is_worthwhile(double gain) { return gain > kWorthwhileGain; }

// What cpu_bfloat16() makes of a processor: whether it has instructions for bfloat16, whether among them some that multiply matrices,
// and its dot_product_gain().
CpuBfloat16 judge_bfloat16(bool has_instructions, bool has_matrices, double dot_product_gain);

}  // namespace gpt::device
