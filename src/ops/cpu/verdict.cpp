#include "ops/kernels.h"
#include "ops/verdict_kernel.h"

namespace gpt::ops::cpu {

void judge(const Evidence& evidence, double max_norm, const Verdict& verdict, const UpdateCounts& counts) {
  ops::judge(scalars_of(evidence, max_norm, verdict, counts));
}

}  // namespace gpt::ops::cpu
