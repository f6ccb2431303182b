// One product that is computed in every way that a library has for it: which of them are right, and which is the fastest.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "product_choice.h"

namespace gpt::ops {

// A product with the factors of the given one, unless their results cannot be compared because they are not finite or all zero: then
// with other factors of the same sizes and types. Results are written to the given product's own memory, again and again, unless it
// adds to what is there, which must not change: then to memory of the trial's own.
class ProductTrial {
 public:
  ProductTrial(const Product& product, ComputeProduct by_libtorch);

  const Product& product() const { return product_; }
  // Whether `compute` gives all results that LibTorch gives, but for rounding. False where it throws c10::Error.
  bool is_right(const std::function<void()>& compute) const;

 private:
  bool is_comparable() const;  // what LibTorch gives
  // Some values of each result, always from the same places.
  std::vector<at::Tensor> values_of(const std::function<void()>& compute) const;

  Product product_;
  std::vector<at::Tensor> expected_;
};

// The fastest way to compute a product of this key. A Library has a type Way and
//   std::vector<Way> ways(const Product&, const ProductKey&);       that it knows
//   void run(const Product&, const ProductKey&, const Way&);        throws c10::Error where it cannot
//   std::vector<std::vector<double>> seconds_of(const std::vector<std::function<void()>>&);   of repetitions of each
template <class Library>
Measured<typename Library::Way> measure(Library& library, const Product& product, const ProductKey& key,
                                        ComputeProduct by_libtorch) {
  const ProductTrial trial(product, by_libtorch);
  std::vector<typename Library::Way> ways;
  std::vector<std::function<void()>> computations{[&] { by_libtorch(trial.product()); }};
  for (const auto& way : library.ways(trial.product(), key)) {
    const auto compute = [&library, &trial, &key, way] { library.run(trial.product(), key, way); };
    if (!trial.is_right(compute)) continue;
    ways.push_back(way);
    computations.emplace_back(compute);
  }
  const Fastest best = fastest(library.seconds_of(computations));
  return Measured<typename Library::Way>{best.way == 0 ? std::nullopt : std::optional(ways[best.way - 1]), best.seconds,
                                         best.first_seconds};
}

}  // namespace gpt::ops
