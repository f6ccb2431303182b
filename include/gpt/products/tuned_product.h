// Matrix products on a GPU, each by the fastest of LibTorch's way and what cuBLASLt's heuristics offer, with the bias, GELU, GELU's
// slope and sums in the same kernel or in kernels of their own: what training.compile_mode max-autotune adds. A product is measured on its own
// operands when one of its kind is computed first, but never while a graph is recorded; the choice lasts for the process.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace gpt::ops {

// y = GELU(x) in its tanh form; of one type and shape.
using GeluKernel = void (*)(const at::Tensor& x, const at::Tensor& y);
// Multiplies the gradient of GELU(x), (M, N), by GELU's slope at x, and writes the sums of its columns to `sums` (N).
using GeluBackwardKernel = void (*)(const at::Tensor& x, const at::Tensor& gradient, const at::Tensor& sums);

// Writes the sum of each row of a (M, K) to `sums` (M).
using SumsKernel = void (*)(const at::Tensor& a, const at::Tensor& sums);

// result = a b, and what is computed with it. All on one device; a and b of one type, and the others of the result's, which is the same
// or, where those have 16 bits, float32. Sums are float32.
struct Product {
  at::Tensor a, b, result;           // (M, K), (K, N), (M, N)
  bool adds = false;                 // to what the result contains
  at::Tensor bias = {};              // (N), is added; or undefined
  at::Tensor gelu = {};              // (M, N), becomes GELU(result) in its tanh form; or undefined
  GeluKernel gelu_kernel = nullptr;  // computes it where the product's own kernel does not
  // The result is at first the gradient of GELU(gelu_input), (M, N), and becomes that of gelu_input, with the sums of its columns (N).
  at::Tensor gelu_input = {}, sums = {};              // both, or undefined
  GeluBackwardKernel gelu_backward_kernel = nullptr;  // computes them where the product's own kernel does not
  at::Tensor sums_of_a = {};                          // (M), becomes the sum of each row of a; or undefined
  SumsKernel sums_of_a_kernel = nullptr;              // computes them where the product's own kernel does not
};

using ComputeProduct = void (*)(const Product& product);

// What is computed with a product whose result is there, by kernels of their own.
void compute_epilogue(const Product& product);

// Within a scope products on a GPU are tuned, in every thread. Does nothing with `is_on` false. On a CPU, for tests, each is LibTorch's,
// but goes the same way.
class TuneProducts {
 public:
  explicit TuneProducts(bool is_on, at::DeviceType device = at::kCUDA);
  ~TuneProducts();
  TuneProducts(const TuneProducts&) = delete;
  TuneProducts& operator=(const TuneProducts&) = delete;

 private:
  std::optional<at::DeviceType> before_;
};

// Whether products of x are tuned here and now.
bool tunes_products(const at::Tensor& x);

// For products with tunes_products(product.a). Whatever cuBLASLt cannot compute is computed `by_libtorch`.
void compute_tuned(const Product& product, ComputeProduct by_libtorch);

// What has been measured in this process so far.
struct Tuning {
  int64_t products = 0, improved = 0;        // kinds of products; those that cuBLASLt's algorithms compute faster
  double seconds = 0, libtorch_seconds = 0;  // the time of one product of each kind
};

// How this process computes the kinds of products that it has met, for one that goes on with the same run: JSON. Empty where it has met none.
std::string chosen_products();
// Takes what chosen_products() gave, and measures none of these. Returns how many kinds there are: none where the text was made on another
// card or with another version of cuBLASLt.
int64_t choose_products(const std::string& json);

Tuning tuning_so_far();
std::string to_text(const Tuning& tuning);  // one line

}  // namespace gpt::ops
