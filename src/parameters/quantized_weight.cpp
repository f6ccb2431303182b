#include "gpt/parameters/quantized_weight.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/round.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

namespace gpt::parameters {
namespace {

constexpr int64_t kGroup = QuantizedWeight::kGroup;
constexpr float kMostInt8 = 127, kMostInt4 = 15;
constexpr int64_t kLeastWeights = 1 << 15;  // for a thread

QuantizedWeight quantize_int8(const at::Tensor& weight) {
  const int64_t rows = weight.size(0), columns = weight.size(1), groups = at::divup(columns, kGroup);
  const at::Tensor grouped = at::constant_pad_nd(weight, {0, groups * kGroup - columns}).view({rows, groups, kGroup});
  const at::Tensor scales = grouped.abs().amax(2).div_(kMostInt8);
  const at::Tensor divisors = at::where(scales > 0, scales, 1).unsqueeze(2);
  // A scale so small that it was rounded itself may give a quotient above 127.
  const at::Tensor codes = at::round(grouped / divisors).clamp_(-kMostInt8, kMostInt8).to(at::kChar);
  return {QuantizedType::int8, rows, columns, codes.view({rows, -1}).narrow(1, 0, columns).contiguous(), scales, {}};
}

// What the codes of a group are multiplied by, and what is added.
struct Line {
  c10::BFloat16 scale, offset;
  float at(float code) const { return code * static_cast<float>(scale) + static_cast<float>(offset); }
};

// Sums of which a compiler can add several at once: the order is the same on every processor.
using Lanes = std::array<float, 8>;

float sum_of(const Lanes& lanes) { return std::accumulate(lanes.begin(), lanes.end(), 0.0f); }

// Weights of a group, the last of them repeated where there are fewer than kGroup, and how much each counts: 1, or 0.
struct Group {
  std::array<float, kGroup> weights = {}, counts = {};
  float least, most;
  float count;

  Group(const float* from, int64_t count) : count(static_cast<float>(count)) {
    std::copy_n(from, count, weights.begin());
    std::fill(weights.begin() + count, weights.end(), from[count - 1]);
    std::fill_n(counts.begin(), count, 1.0f);
    const auto [low, high] = std::minmax_element(weights.begin(), weights.end());
    least = *low, most = *high;
  }
};

struct CodedGroup {
  Line line = {};
  std::array<float, kGroup> codes = {};
  float error = std::numeric_limits<float>::infinity();  // sum of squares
};

// The nearest codes on this line.
CodedGroup coded(const Group& group, Line line) {
  constexpr float kRounds = 12582912;  // 1.5 * 2^23: adding it leaves no room for a fraction
  CodedGroup result{.line = line};
  const auto scale = static_cast<float>(line.scale), offset = static_cast<float>(line.offset);
  const float inverse = scale > 0 ? 1 / scale : 0;
  Lanes errors = {};
  for (size_t i = 0; i < kGroup; i += errors.size()) {
    for (size_t k = 0; k < errors.size(); ++k) {
      const float quotient = (group.weights[i + k] - offset) * inverse, bounded = quotient < 0 ? 0 : quotient;
      const float code = (bounded > kMostInt4 ? kMostInt4 : bounded) + kRounds - kRounds;
      const float rest = code * scale + offset - group.weights[i + k];
      result.codes[i + k] = code;
      errors[k] += rest * rest * group.counts[i + k];
    }
  }
  result.error = sum_of(errors);
  return result;
}

// The line with the least squares of errors for these codes.
Line fitted(const Group& group, const CodedGroup& old) {
  Lanes code_lanes = {}, square_lanes = {}, weight_lanes = {}, product_lanes = {};
  for (size_t i = 0; i < kGroup; i += code_lanes.size()) {
    for (size_t k = 0; k < code_lanes.size(); ++k) {
      const float code = old.codes[i + k] * group.counts[i + k], weight = group.weights[i + k];
      code_lanes[k] += code, square_lanes[k] += code * code;
      weight_lanes[k] += weight * group.counts[i + k], product_lanes[k] += weight * code;
    }
  }
  const float codes = sum_of(code_lanes), squares = sum_of(square_lanes), weights = sum_of(weight_lanes),
              products = sum_of(product_lanes);
  const float determinant = group.count * squares - codes * codes;
  const float scale = (group.count * products - codes * weights) / determinant;
  return determinant > 0 && scale > 0 ? Line{scale, (weights - scale * codes) / group.count} : old.line;
}

// From lines that reach less far than the group's least and largest weights: where few weights lie far out, the others gain more from
// smaller steps than those lose. Each is fitted to its codes, and the codes to it, a few times.
CodedGroup best_group(const float* weights, int64_t count) {
  constexpr std::array kReaches = {1.0f, 0.9f, 0.8f, 0.7f};  // of the whole range
  constexpr int kFits = 3;
  const Group group(weights, count);
  const float middle = (group.least + group.most) / 2, range = group.most - group.least;
  CodedGroup best;
  for (const float reach : kReaches) {
    CodedGroup current = coded(group, {range * reach / kMostInt4, middle - range * reach / 2});
    for (int fit = 0; fit < kFits; ++fit) {
      const CodedGroup next = coded(group, fitted(group, current));
      if (!(next.error < current.error)) break;
      current = next;
    }
    if (current.error < best.error) best = current;
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

template <class To>
void write_row_of_int8(const QuantizedWeight& weight, int64_t row, To* to) {
  const auto* const codes = weight.codes.const_data_ptr<int8_t>() + row * weight.columns;
  const auto* const scales = weight.scales.const_data_ptr<float>() + row * weight.groups();
  for (int64_t first = 0; first < weight.columns; first += kGroup) {
    const float scale = scales[first / kGroup];
    const int64_t end = std::min(weight.columns, first + kGroup);
    for (int64_t k = first; k < end; ++k) to[k] = static_cast<To>(static_cast<float>(codes[k]) * scale);
  }
}

// A group has sixteen values at most, each of which is computed once.
template <class To>
void write_row_of_int4(const QuantizedWeight& weight, int64_t row, To* to) {
  const auto* const codes = weight.codes.const_data_ptr<uint8_t>() + row * weight.codes.size(1);
  const auto* const scales = weight.scales.const_data_ptr<c10::BFloat16>() + row * weight.groups();
  const auto* const offsets = weight.offsets.const_data_ptr<c10::BFloat16>() + row * weight.groups();
  for (int64_t first = 0; first < weight.columns; first += kGroup) {
    const Line line{scales[first / kGroup], offsets[first / kGroup]};
    std::array<To, 16> values;
    for (size_t code = 0; code < values.size(); ++code)
      values[code] = static_cast<To>(line.at(static_cast<float>(code)));
    const int64_t end = std::min(weight.columns, first + kGroup);
    for (int64_t k = first; k + 1 < end; k += 2) {
      const uint8_t pair = codes[k / 2];
      to[k] = values[pair & 15], to[k + 1] = values[pair >> 4];
    }
    if (end % 2 == 1) to[end - 1] = values[codes[end / 2] & 15];
  }
}

// Row number_of(i) of the weight becomes row i of `to`.
template <class Number>
void write_rows(const QuantizedWeight& weight, const at::Tensor& to, const Number& number_of) {
  const int64_t columns = weight.columns;
  const auto write = [&]<class To>(To* values) {
    at::parallel_for(0, to.size(0), std::max<int64_t>(1, kLeastWeights / columns), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        weight.type == QuantizedType::int8 ? write_row_of_int8(weight, number_of(i), values + i * columns)
                                           : write_row_of_int4(weight, number_of(i), values + i * columns);
    });
  };
  TORCH_CHECK(to.scalar_type() == at::kFloat || to.scalar_type() == at::kBFloat16,
              "dequantize: gives float32 or bfloat16, not ", to.scalar_type());
  to.scalar_type() == at::kFloat ? write(to.mutable_data_ptr<float>()) : write(to.mutable_data_ptr<c10::BFloat16>());
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

at::Tensor dequantize(const QuantizedWeight& weight, at::ScalarType type) {
  const at::Tensor result = at::empty({weight.rows, weight.columns}, type);
  write_rows(weight, result, [](int64_t i) { return i; });
  return result;
}

at::Tensor dequantize_rows(const QuantizedWeight& weight, const at::Tensor& ids, at::ScalarType type) {
  TORCH_CHECK(ids.dim() == 1 && ids.scalar_type() == at::kLong && ids.is_cpu(),
              "dequantize_rows: needs int64 ids on a CPU, got ", ids.sizes(), " ", ids.scalar_type());
  const at::Tensor numbers = ids.contiguous(), result = at::empty({ids.numel(), weight.columns}, type);
  const auto* const row = numbers.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < numbers.numel(); ++i)
    TORCH_CHECK(row[i] >= 0 && row[i] < weight.rows, "dequantize_rows: row ", row[i], " of ", weight.rows);
  write_rows(weight, result, [row](int64_t i) { return row[i]; });
  return result;
}

}  // namespace gpt::parameters
