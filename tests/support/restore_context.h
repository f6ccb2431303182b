// Within its scope apply_precision() may set what it likes for the process: the tests that follow find it as it was.
#pragma once

#include <ATen/Context.h>

#include <array>

namespace gpt {

class RestoreContext {
 public:
  RestoreContext() {
    for (size_t i = 0; i < kOps.size(); ++i) precision_[i] = context_.float32Precision(kBackend, kOps[i]);
  }
  ~RestoreContext() {
    for (size_t i = 0; i < kOps.size(); ++i) context_.setFloat32Precision(kBackend, kOps[i], precision_[i]);
    context_.setDeterministicAlgorithms(deterministic_, /*warn_only=*/false);
    context_.setDeterministicFillUninitializedMemory(fills_memory_);
    context_.setDeterministicCuDNN(deterministic_cudnn_);
    context_.setBenchmarkCuDNN(benchmark_cudnn_);
    context_.setAllowBF16ReductionCuBLAS(may_round(of_bfloat16_), may_split(of_bfloat16_));
    context_.setAllowFP16ReductionCuBLAS(may_round(of_float16_), may_split(of_float16_));
  }
  RestoreContext(const RestoreContext&) = delete;
  RestoreContext& operator=(const RestoreContext&) = delete;

 private:
  // How cuBLAS may reduce the sums of products.
  using Reduction = at::CuBLASReductionOption;
  static bool may_round(Reduction option) { return option == Reduction::AllowReducedPrecisionWithSplitK; }
  static bool may_split(Reduction option) { return option != Reduction::DisallowReducedPrecisionDisallowSplitK; }

  static constexpr at::Float32Backend kBackend = at::Float32Backend::CUDA;
  static constexpr std::array kOps{at::Float32Op::MATMUL, at::Float32Op::CONV, at::Float32Op::RNN};

  at::Context& context_ = at::globalContext();
  Reduction of_bfloat16_ = context_.allowBF16ReductionCuBLAS(), of_float16_ = context_.allowFP16ReductionCuBLAS();
  std::array<at::Float32Precision, kOps.size()> precision_;
  bool deterministic_ = context_.deterministicAlgorithms(),
       fills_memory_ = context_.deterministicFillUninitializedMemory(),
       deterministic_cudnn_ = context_.deterministicCuDNN(), benchmark_cudnn_ = context_.benchmarkCuDNN();
};

}  // namespace gpt
