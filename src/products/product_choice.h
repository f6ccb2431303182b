// How to compute each kind of matrix product, chosen by measuring: what a choice depends on, how times decide, and the choices of a
// process. Knows neither a GPU nor a library, but for LibTorch's, which is there for every product.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/products/tuned_product.h"

namespace gpt::ops {

// Products with the same key are computed in the same way.
struct ProductKey {
  int64_t rows, columns, inner;  // (rows, inner) times (inner, columns)
  at::ScalarType type, result_type;
  bool a_transposed, b_transposed;  // the factor is a view of its transpose, which is contiguous
  bool adds, has_bias, has_gelu, has_gelu_slope, has_sums_of_a;
  int64_t alignment;  // the alignment of every pointer, in bytes: 16 or 256
  auto operator<=>(const ProductKey&) const = default;

  // Whether something is computed with the product that its own kernel may leave to another.
  bool has_epilogue() const { return has_input_of_gelu() || has_sums_of_a; }
  bool has_input_of_gelu() const { return has_gelu || has_gelu_slope; }
};

// Empty for what cuBLASLt is not asked for: an empty product, other strides or types, or pointers that are not aligned.
std::optional<ProductKey> key_of(const Product& product);

// 4096 x 3072 x 768, which is rows x columns x inner, and what goes with it.
std::string name_of(const ProductKey& key);

// A matrix as cuBLASLt takes it, which stores by columns and so sees the transpose of each of ours.
struct StoredMatrix {
  int64_t rows, columns;  // as it is stored; the stride from one column to the next is `rows`
  bool transposed;        // transposed before it is multiplied
};

// result^T = b^T a^T: `first` is b, `second` is a.
struct StoredProduct {
  StoredMatrix first, second, result;
};

StoredProduct stored(const ProductKey& key);

struct Fastest {
  size_t way = 0;
  double seconds = 0, first_seconds = 0;  // the time of one product, by that way and by the first
};

// The way with the least median of the seconds that its repetitions took. It is the first one, which is LibTorch's, unless another is
// faster by more than the noise of such measurements.
Fastest fastest(const std::vector<std::vector<double>>& seconds);

// What measuring a product found: a way of another library, or none where LibTorch's is the fastest.
template <class Way>
struct Measured {
  std::optional<Way> way;
  double seconds = 0, libtorch_seconds = 0;
};

template <class Way>
class ProductChoices {
 public:
  // How to compute the product, which `measure` finds out when it is seen first: std::optional<Measured<Way>>(), empty where it cannot
  // be found out now. A c10::Error of `measure` leaves LibTorch's way for good, and is logged.
  template <class Measure>
  std::optional<Way> find(const ProductKey& key, const Measure& measure) {
    const auto known = ways_.find(key);
    if (known != ways_.end()) return known->second;
    try {
      const std::optional<Measured<Way>> measured = measure();
      if (!measured) return std::nullopt;
      ++tuning_.products;
      tuning_.improved += measured->way ? 1 : 0;
      tuning_.libtorch_seconds += measured->libtorch_seconds;
      tuning_.seconds += measured->seconds;
      return ways_[key] = measured->way;
    } catch (const c10::Error& error) {
      give_up(key, error);
      return std::nullopt;
    }
  }

  // From now on this product is LibTorch's.
  void give_up(const ProductKey& key, const c10::Error& error) {
    ways_[key] = std::nullopt;
    log::warn("Product " + name_of(key) + " stays LibTorch's: " + first_line(error.what()));
  }

  // The way of every kind of product that has been looked for or kept: nothing is LibTorch's way.
  const std::map<ProductKey, std::optional<Way>>& ways() const { return ways_; }

  // As it was found by another process. What this one knows already stays.
  void keep(const ProductKey& key, const std::optional<Way>& way) { ways_.emplace(key, way); }

  const Tuning& tuning() const { return tuning_; }

 private:
  std::map<ProductKey, std::optional<Way>> ways_;
  Tuning tuning_;
};

}  // namespace gpt::ops
