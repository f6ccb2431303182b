#ifdef GPT_CUDA
#include "cublaslt.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace gpt::ops::cuda {
namespace {

constexpr size_t kMostWorkspace = 32 << 20;  // bytes; what NVIDIA recommends for Hopper

void check(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  cudaGetLastError();  // must not be reported by the next launch check
  TORCH_CHECK(false, "cuBLASLt: ", cublasLtGetStatusString(status));
}

template <class Value>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  check(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof(value)));
}

template <class Value>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
}

cudaDataType_t data_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return CUDA_R_32F;
    case at::kBFloat16: return CUDA_R_16BF;
    case at::kHalf: return CUDA_R_16F;
    default: TORCH_CHECK(false, "cuBLASLt: no product of ", type);
  }
}

// Sums are float32 for every type.
cublasComputeType_t compute_type(at::ScalarType type) {
  const bool tf32 = at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
                    at::Float32Precision::TF32;
  return type == at::kFloat && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

// In cuBLASLt's columns the bias has an entry for each row of the result.
cublasLtEpilogue_t epilogue(const ProductKey& key, bool is_fused) {
  if (is_fused && key.has_gelu_slope) return CUBLASLT_EPILOGUE_DGELU_BGRAD;
  if (is_fused && key.has_sums_of_a) return CUBLASLT_EPILOGUE_BGRADB;
  if (is_fused && key.has_gelu) return key.has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  return key.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

// The handle for the device that is current when it is first asked for: the one that the process computes on. Never destroyed, because
// CUDA may be gone by then.
cublasLtHandle_t handle() {
  static const cublasLtHandle_t handle = [] {
    cublasLtHandle_t created = nullptr;
    check(cublasLtCreate(&created));
    return created;
  }();
  return handle;
}

}  // namespace

Matmul::Layout Matmul::layout(const StoredMatrix& matrix, at::ScalarType type) {
  cublasLtMatrixLayout_t created = nullptr;
  check(cublasLtMatrixLayoutCreate(&created, data_type(type), matrix.rows, matrix.columns, /*ld=*/matrix.rows));
  return Layout(created);
}

Matmul::Matmul(const Product& product, const ProductKey& key, bool is_fused)
    : beta_(key.adds ? 1 : 0), alignment_(key.alignment), of_workspace_(product.a.options().dtype(at::kByte)) {
  const auto [first, second, result] = stored(key);
  first_layout_ = layout(first, key.type), second_layout_ = layout(second, key.type);
  result_layout_ = layout(result, key.result_type);
  cublasLtMatmulDesc_t description = nullptr;
  check(cublasLtMatmulDescCreate(&description, compute_type(key.type), /*of alpha and beta=*/CUDA_R_32F));
  description_.reset(description);
  const auto operation = [](const StoredMatrix& matrix) -> int32_t {
    return matrix.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, operation(first));
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, operation(second));
  set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(epilogue(key, is_fused)));
  first_ = product.b.const_data_ptr(), second_ = product.a.const_data_ptr();
  result_ = product.result.mutable_data_ptr();
  // Its type is that of the result, which is the default.
  if (key.has_bias) set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias.const_data_ptr());
  if (is_fused && key.has_gelu) {  // becomes what cuBLASLt calls the result, and ours its auxiliary output
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, result_);
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, result.rows);
    result_ = product.gelu.mutable_data_ptr();
  }
  if (is_fused && key.has_gelu_slope) {  // the sums are the gradient of a bias
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, product.gelu_input.const_data_ptr());
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, result.rows);
    set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.sums.mutable_data_ptr());
  }
  if (is_fused && key.has_sums_of_a)
    set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.sums_of_a.mutable_data_ptr());
}

std::vector<MatmulAlgorithm> Matmul::algorithms(int most) const {
  cublasLtMatmulPreference_t created = nullptr;
  check(cublasLtMatmulPreferenceCreate(&created));
  const Preference preference(created);
  set(created, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kMostWorkspace));
  // Partial sums are added in float32 too.
  set(created, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(created, attribute, static_cast<uint32_t>(alignment_));
  std::vector<cublasLtMatmulHeuristicResult_t> found(most);
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle(), description_.get(), first_layout_.get(), second_layout_.get(),
                                     result_layout_.get(), result_layout_.get(), created, most, found.data(), &count);
  // It gives the second for some products with a single row or column; another epilogue may work.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
  check(status);
  std::vector<MatmulAlgorithm> algorithms;
  for (int i = 0; i < count; ++i)
    if (found[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back({found[i].algo, found[i].workspaceSize});
  return algorithms;
}

void Matmul::run(const MatmulAlgorithm& algorithm) const {
  const float alpha = 1;
  // Freed when the kernel has been launched: what comes next on this stream may have it then.
  const at::Tensor workspace = at::empty({static_cast<int64_t>(algorithm.workspace_bytes)}, of_workspace_);
  check(cublasLtMatmul(handle(), description_.get(), &alpha, first_, first_layout_.get(), second_, second_layout_.get(),
                       &beta_, /*C=*/result_, result_layout_.get(), /*D=*/result_, result_layout_.get(),
                       &algorithm.algorithm, workspace.mutable_data_ptr(), algorithm.workspace_bytes,
                       c10::cuda::getCurrentCUDAStream()));
}

}  // namespace gpt::ops::cuda
#endif
