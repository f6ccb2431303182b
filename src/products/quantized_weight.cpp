#include "gpt/products/quantized_weight.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/round.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace gpt {
namespace {

constexpr int64_t kGroup = QuantizedWeight::kGroup;
constexpr float kMostInt8 = 127, kMostInt4 = 15;
constexpr int64_t kLeastWeights = 1 << 15;  // for a thread

QuantizedWeight quantize_int8(const at::Tensor& weight) {
  const at::Tensor scales = weight.abs().amax(1).div_(kMostInt8);
  const at::Tensor divisors = at::where(scales > 0, scales, 1).unsqueeze(1);
  // A scale so small that it was rounded itself may give a quotient above 127.
  const at::Tensor codes = at::round(weight / divisors).clamp_(-kMostInt8, kMostInt8).to(at::kChar);
  return {QuantizedType::int8, weight.size(0), weight.size(1), codes, scales, {}};
}

// What the codes of a group are multiplied by, and what is added.
struct Line {
  c10::BFloat16 scale, offset;
  float at(float code) const { return code * static_cast<float>(scale) + static_cast<float>(offset); }
};

struct CodedGroup {
  Line line = {};
  std::array<float, kGroup> codes = {};
  float error = std::numeric_limits<float>::infinity();  // sum of squares
};

// The nearest codes on this line.
CodedGroup coded(const float* weights, int64_t count, Line line) {
  constexpr float kRounds = 12582912;  // 1.5 * 2^23: adding it leaves no room for a fraction
  CodedGroup group{.line = line, .error = 0};
  const auto scale = static_cast<float>(line.scale), offset = static_cast<float>(line.offset);
  const float inverse = scale > 0 ? 1 / scale : 0;
  for (int64_t i = 0; i < count; ++i) {
    const float code = std::clamp((weights[i] - offset) * inverse, 0.0f, kMostInt4);
    group.codes[i] = code + kRounds - kRounds;
    const float rest = line.at(group.codes[i]) - weights[i];
    group.error += rest * rest;
  }
  return group;
}

// The line with the least squares of errors for these codes.
Line fitted(const float* weights, int64_t count, const CodedGroup& group) {
  float codes = 0, squares = 0, sum = 0, products = 0;
  for (int64_t i = 0; i < count; ++i) {
    codes += group.codes[i], squares += group.codes[i] * group.codes[i];
    sum += weights[i], products += weights[i] * group.codes[i];
  }
  const auto n = static_cast<float>(count);
  const float determinant = n * squares - codes * codes;
  if (!(determinant > 0)) return group.line;
  const float scale = (n * products - codes * sum) / determinant;
  return scale > 0 ? Line{scale, (sum - scale * codes) / n} : group.line;
}

// From lines that reach less or more far than the group's least and largest weights: where few weights lie far out, the others gain more
// from smaller steps than those lose. Each is fitted to its codes, and the codes to it, a few times.
CodedGroup best_group(const float* weights, int64_t count) {
  constexpr std::array kReaches = {1.0f, 0.95f, 0.9f, 0.85f, 0.8f, 0.75f, 0.7f};  // of the whole range
  constexpr int kFits = 3;
  const auto [least, most] = std::minmax_element(weights, weights + count);
  const float middle = (*least + *most) / 2, range = *most - *least;
  CodedGroup best;
  const auto take = [&](const CodedGroup& group) {
    const bool is_better = group.error < best.error;
    if (is_better) best = group;
    return is_better;
  };
  for (const float reach : kReaches) {
    CodedGroup group = coded(weights, count, {range * reach / kMostInt4, middle - range * reach / 2});
    take(group);
    for (int fit = 0; fit < kFits; ++fit) {
      CodedGroup next = coded(weights, count, fitted(weights, count, group));
      if (!(next.error < group.error)) break;
      group = next;
      take(group);
    }
  }
  return best;
}

QuantizedWeight quantize_int4(const at::Tensor& weight) {
  QuantizedWeight result{QuantizedType::int4, weight.size(0), weight.size(1), {}, {}, {}};
  const int64_t columns = result.columns, groups = result.groups(), row_bytes = at::divup(columns, 2);
  result.codes = at::empty({result.rows, row_bytes}, at::kByte);
  result.scales = at::empty({result.rows, groups}, at::kBFloat16);
  result.offsets = at::empty({result.rows, groups}, at::kBFloat16);
  const auto* from = weight.const_data_ptr<float>();
  auto* codes = result.codes.mutable_data_ptr<uint8_t>();
  auto* scales = result.scales.mutable_data_ptr<c10::BFloat16>();
  auto* offsets = result.offsets.mutable_data_ptr<c10::BFloat16>();
  at::parallel_for(0, result.rows, std::max<int64_t>(1, kLeastWeights / columns), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * groups; i < end * groups; ++i) {
      const int64_t row = i / groups, first = i % groups * kGroup, count = std::min(kGroup, columns - first);
      const CodedGroup group = best_group(from + row * columns + first, count);
      scales[i] = group.line.scale, offsets[i] = group.line.offset;
      for (int64_t k = 0; k < count; k += 2) {
        const auto low = static_cast<uint8_t>(group.codes[k]),
                   high = k + 1 < count ? static_cast<uint8_t>(group.codes[k + 1]) : uint8_t{0};
        codes[row * row_bytes + (first + k) / 2] = static_cast<uint8_t>(low | high << 4);
      }
    }
  });
  return result;
}

}  // namespace

std::string_view name_of(QuantizedType type) { return type == QuantizedType::int8 ? "int8" : "int4"; }

int64_t QuantizedWeight::bytes() const {
  const auto of = [](const at::Tensor& part) { return part.defined() ? static_cast<int64_t>(part.nbytes()) : 0; };
  return of(codes) + of(scales) + of(offsets);
}

QuantizedWeight quantize(const at::Tensor& weight, QuantizedType type) {
  TORCH_CHECK(weight.is_cpu() && weight.dim() == 2 && weight.numel() > 0, "quantize: takes a matrix on the CPU, got ",
              weight.sizes(), " on ", weight.device());
  const at::Tensor values = weight.detach().to(at::kFloat).contiguous();
  return type == QuantizedType::int8 ? quantize_int8(values) : quantize_int4(values);
}

at::Tensor dequantize(const QuantizedWeight& weight) {
  if (weight.type == QuantizedType::int8) return weight.codes.to(at::kFloat).mul_(weight.scales.unsqueeze(1));
  at::Tensor result = at::empty({weight.rows, weight.columns}, at::kFloat);
  const auto* codes = weight.codes.const_data_ptr<uint8_t>();
  const auto* scales = weight.scales.const_data_ptr<c10::BFloat16>();
  const auto* offsets = weight.offsets.const_data_ptr<c10::BFloat16>();
  auto* to = result.mutable_data_ptr<float>();
  for (int64_t row = 0; row < weight.rows; ++row) {
    for (int64_t k = 0; k < weight.columns; ++k) {
      const int code = codes[row * weight.codes.size(1) + k / 2] >> (k % 2 == 0 ? 0 : 4) & 15;
      const int64_t group = row * weight.groups() + k / kGroup;
      *to++ = Line{scales[group], offsets[group]}.at(static_cast<float>(code));
    }
  }
  return result;
}

}  // namespace gpt
