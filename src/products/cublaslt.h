// cuBLASLt's matrix product as the operators need it: row-major tensors, with bias, GELU, GELU's slope or sums of a factor in the same kernel.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

#include "gpt/products/tuned_product.h"
#include "product_choice.h"

namespace gpt::ops::cuda {

struct MatmulAlgorithm {
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace_bytes;
};

// Both functions throw c10::Error where cuBLASLt returns an error.
class Matmul {
 public:
  // is_fused: computes `gelu` too, multiplies by GELU's slope, or sums the rows of a. Always adds the bias. Keeps pointers into the
  // product's tensors.
  Matmul(const Product& product, const ProductKey& key, bool is_fused);

  // At most so many, those first that cuBLASLt takes for the fastest; none where it has no kernel for this product.
  std::vector<MatmulAlgorithm> algorithms(int most) const;
  void run(const MatmulAlgorithm& algorithm) const;  // on the current stream

 private:
  template <auto Destroy>
  struct Destroyer {
    template <class T>
    void operator()(T* descriptor) const {
      Destroy(descriptor);
    }
  };
  template <class Handle, auto Destroy>
  using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<Destroy>>;
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
  using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
  using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

  static Layout layout(const StoredMatrix& matrix, at::ScalarType type);

  Description description_;
  Layout first_layout_, second_layout_, result_layout_;
  const void *first_, *second_;
  void* result_;
  float beta_;
  int64_t alignment_;
  at::TensorOptions of_workspace_;
};

}  // namespace gpt::ops::cuda
