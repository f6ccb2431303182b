#ifdef GPT_CUDA
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <mutex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cublaslt.h"
#include "gpt/device/graph.h"
#include "gpt/products/tuned_product.h"
#include "product_trial.h"
#include "stored_choices.h"

namespace gpt::ops {
namespace {

using cuda::Matmul;
using cuda::MatmulAlgorithm;

int64_t bytes_of(const Product& product) {
  int64_t bytes = 0;
  for (const at::Tensor& x : {product.a, product.b, product.result, product.gelu, product.gelu_input})
    bytes += x.defined() ? static_cast<int64_t>(x.nbytes()) : 0;
  return bytes;
}

// cuBLASLt's algorithms, with GELU, its slope or sums in the same kernel or in one of their own.
struct CublasLt {
  struct Way {
    bool is_fused;
    MatmulAlgorithm algorithm;
  };
  int64_t bytes;  // bytes of the factors and the results of the product that is measured

  // What an algorithm is the same for.
  static std::string name() {
    return fmt::format("{}, cuBLASLt {}", at::cuda::getCurrentDeviceProperties()->name, cublasLtGetVersion());
  }

  static std::vector<Way> ways(const Product& product, const ProductKey& key) {
    constexpr int kMostAlgorithms = 24;
    std::vector<Way> ways;
    for (const bool is_fused : {true, false}) {
      if (!is_fused && !key.has_epilogue()) continue;                             // the same again
      if (is_fused && key.has_input_of_gelu() && key.columns % 8 != 0) continue;  // cuBLASLt takes no other
      for (const MatmulAlgorithm& algorithm : Matmul(product, key, is_fused).algorithms(kMostAlgorithms))
        ways.push_back({is_fused, algorithm});
    }
    return ways;
  }

  static void run(const Product& product, const ProductKey& key, const Way& way) {
    Matmul(product, key, way.is_fused).run(way.algorithm);
    if (!way.is_fused) compute_epilogue(product);
  }

  // All computations in turn, several times. Before each, a buffer larger than the second-level cache is read, as what a step does in
  // between would have evicted the tensors of a large product; reading leaves nothing that is still to be written meanwhile. A small
  // product finds them in the cache, where computing it once more puts them. The host gets ahead of the device, so that its time is
  // not measured.
  std::vector<std::vector<double>> seconds_of(const std::vector<std::function<void()>>& computations) const {
    constexpr int kWarmUp = 2, kRepetitions = 7, kReadings = 4;
    using Event = c10::cuda::CUDAEvent;
    const int64_t cache = at::cuda::getCurrentDeviceProperties()->l2CacheSize;                       // bytes
    const at::Tensor read = at::zeros({cache / 2}, at::TensorOptions(at::kCUDA).dtype(at::kFloat));  // twice the cache
    const bool stays_in_cache = 2 * bytes <= cache;
    std::vector<std::vector<std::pair<Event, Event>>> events(computations.size());
    for (int repetition = 0; repetition < kWarmUp + kRepetitions; ++repetition) {
      for (size_t i = 0; i < computations.size(); ++i) {
        Event begin(cudaEventDefault), end(cudaEventDefault);
        for (int time = 0; time < kReadings; ++time) read.sum();
        if (stays_in_cache) computations[i]();
        begin.record();
        computations[i]();
        end.record();
        if (repetition >= kWarmUp) events[i].emplace_back(std::move(begin), std::move(end));
      }
    }
    events.back().back().second.synchronize();  // sync: once for each kind of product
    std::vector<std::vector<double>> seconds(computations.size());
    for (size_t i = 0; i < computations.size(); ++i)
      for (const auto& [begin, end] : events[i]) seconds[i].push_back(1e-3 * begin.elapsed_time(end));
    return seconds;
  }
};

std::mutex mutex;  // guards the choices: forward and backward pass are on different threads

ProductChoices<CublasLt::Way>& choices() {
  static ProductChoices<CublasLt::Way> choices;
  return choices;
}

// An algorithm is eight numbers that cuBLASLt allows to be kept.
std::string to_text(const CublasLt::Way& way) {
  return fmt::format("{} {} {:x}", way.is_fused ? "fused" : "apart", way.algorithm.workspace_bytes,
                     fmt::join(way.algorithm.algorithm.data, " "));
}

std::optional<CublasLt::Way> way_from_text(const std::string& text) {
  std::istringstream from(text);
  std::string fused;
  CublasLt::Way way{};
  from >> fused >> way.algorithm.workspace_bytes >> std::hex;
  for (auto& number : way.algorithm.algorithm.data) from >> number;
  way.is_fused = fused == "fused";
  return from ? std::optional(way) : std::nullopt;
}

}  // namespace

void compute_tuned(const Product& product, ComputeProduct by_libtorch) {
  if (!product.a.is_cuda()) return by_libtorch(product);
  const c10::cuda::CUDAGuard guard(product.a.device());
  const std::lock_guard lock(mutex);
  const std::optional<ProductKey> key = key_of(product);
  const auto find = [&]() -> std::optional<Measured<CublasLt::Way>> {
    if (device::is_recording()) return std::nullopt;
    CublasLt library{bytes_of(product)};
    return measure(library, product, *key, by_libtorch);
  };
  const std::optional<CublasLt::Way> way = key ? choices().find(*key, find) : std::nullopt;
  if (!way) return by_libtorch(product);
  try {
    Matmul(product, *key, way->is_fused).run(way->algorithm);
  } catch (const c10::Error& error) {  // nothing has been computed
    choices().give_up(*key, error);
    return by_libtorch(product);
  }
  if (!way->is_fused) compute_epilogue(product);
}

std::string chosen_products() {
  const std::lock_guard lock(mutex);
  std::vector<StoredChoice> choices_to_store;
  for (const auto& [key, way] : choices().ways())
    choices_to_store.push_back({key, way ? std::optional(to_text(*way)) : std::nullopt});
  return choices_to_store.empty() ? "" : write_choices(CublasLt::name(), choices_to_store);
}

int64_t choose_products(const std::string& json) {
  const std::lock_guard lock(mutex);
  const std::vector<StoredChoice> stored = read_choices(CublasLt::name(), json);
  for (const auto& [key, way] : stored) choices().keep(key, way ? way_from_text(*way) : std::nullopt);
  return std::ssize(stored);
}

Tuning tuning_so_far() {
  const std::lock_guard lock(mutex);
  return choices().tuning();
}

}  // namespace gpt::ops
#endif
