#include "gpt/ops/moments.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "gpt/layout/alignment.h"
#include "moment_map.h"

namespace gpt::ops {
namespace {

constexpr int64_t kBlock = layout::kParameterAlignment;

// Calls work(block, begin, end) for each block of `count` values.
template <class Work>
void for_blocks(int64_t count, const Work& work) {
  constexpr int64_t kGrain = 64;
  at::parallel_for(0, (count + kBlock - 1) / kBlock, kGrain, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block)
      work(block, block * kBlock, std::min((block + 1) * kBlock, count));
  });
}

template <bool is_signed>
void quantize(const float* values, int64_t count, uint8_t* codes, float* maxima) {
  for_blocks(count, [=](int64_t block, int64_t begin, int64_t end) {
    float maximum = 0;
    for (int64_t i = begin; i < end; ++i) maximum = std::max(maximum, std::abs(values[i]));
    maxima[block] = maximum;
    const float reciprocal = reciprocal_of_maximum(maximum);
    for (int64_t i = begin; i < end; ++i)
      codes[i] = static_cast<uint8_t>(encoded_moment<is_signed>(values[i] * reciprocal));
  });
}

template <bool is_signed>
void dequantize(const uint8_t* codes, const float* maxima, int64_t count, float* values) {
  for_blocks(count, [=](int64_t block, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) values[i] = decoded_moment<is_signed>(codes[i]) * maxima[block];
  });
}

}  // namespace

uint8_t code_of_zero(MomentKind kind) {
  return kind == MomentKind::first ? MomentMap<true>::kNegatives : MomentMap<false>::kNegatives;
}

QuantizedMoments quantized(const at::Tensor& values, MomentKind kind) {
  const at::Tensor from = values.detach().to(at::kCPU, at::kFloat).contiguous();
  const int64_t count = from.numel();
  QuantizedMoments to{at::empty(from.sizes(), at::kByte), at::empty({(count + kBlock - 1) / kBlock}, at::kFloat)};
  const auto convert = kind == MomentKind::first ? quantize<true> : quantize<false>;
  convert(from.const_data_ptr<float>(), count, to.codes.mutable_data_ptr<uint8_t>(),
          to.maxima.mutable_data_ptr<float>());
  return to;
}

at::Tensor dequantized(const QuantizedMoments& moments, MomentKind kind) {
  const at::Tensor codes = moments.codes.cpu().contiguous(), maxima = moments.maxima.cpu().contiguous();
  const int64_t count = codes.numel();
  TORCH_CHECK(maxima.numel() == (count + kBlock - 1) / kBlock, "dequantized: ", maxima.numel(), " maxima do not fit ",
              count, " codes");
  at::Tensor values = at::empty(codes.sizes(), at::kFloat);
  const auto convert = kind == MomentKind::first ? dequantize<true> : dequantize<false>;
  convert(codes.const_data_ptr<uint8_t>(), maxima.const_data_ptr<float>(), count, values.mutable_data_ptr<float>());
  return values;
}

}  // namespace gpt::ops
