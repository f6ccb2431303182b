#include "gpt/parameters/divided_values.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "gpt/layout/alignment.h"
#include "without_data.h"

namespace gpt::parameters {
namespace {

// A leaf of its own, as of a whole flat buffer.
at::Tensor view_of(const at::Tensor& flat, int64_t begin, at::IntArrayRef shape) {
  return flat.narrow(0, begin, c10::multiply_integers(shape)).view(shape).detach();
}

layout::FlatSpan common_of(layout::FlatSpan a, layout::FlatSpan b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}
bool is_empty(layout::FlatSpan span) { return span.begin >= span.end; }

// What of `from`, which is `of` in the flat buffer, is in `into`, which is `span` there.
void copy_common(const at::Tensor& from, layout::FlatSpan of, const at::Tensor& into, layout::FlatSpan span) {
  const layout::FlatSpan common = common_of(of, span);
  if (is_empty(common)) return;
  into.slice(0, common.begin - span.begin, common.end - span.begin)
      .copy_(from.slice(0, common.begin - of.begin, common.end - of.begin));
}

}  // namespace

DividedValues::DividedValues(const std::vector<layout::ParameterRow>& rows, const layout::FlatLayout& layout,
                             const ParameterTypes& types, at::Device device, ValueDivision division)
    : offsets_(layout.offsets), division_(std::move(division)), kept_type_(types.kept()), compute_type_(types.compute) {
  TORCH_CHECK(layout.trained_size == layout.size, "DividedValues: all parameters must be trained");
  for (const layout::ParameterRow& row : rows) shapes_.push_back(row.shape);
  const at::TensorOptions kept = at::TensorOptions(device).dtype(kept_type_), computed = kept.dtype(compute_type_);
  before_ = at::zeros({division_.blocks.back().begin}, computed);
  behind_ = at::zeros({layout.size - division_.blocks.front().end}, computed);
  for (const auto& [begin, end] : division_.blocks) of_block_.push_back(without_data(end - begin, computed));
  if (has_copies()) {
    values_ = without_data(layout.size, kept);
    float32_places_ = places_of_float32(rows);
    float32_ = at::zeros({float32_size_}, kept);
  }
  for (const layout::FlatSpan span : division_.own)
    own_.push_back(
        {span, is_outside(span) && !has_copies() ? outside_of(span) : at::zeros({span.end - span.begin}, kept)});
}

std::vector<int64_t> DividedValues::places_of_float32(const std::vector<layout::ParameterRow>& rows) {
  std::vector<int64_t> places;
  for (const layout::ParameterRow& row : rows) {
    places.push_back(layout::is_norm(row.role) ? float32_size_ : -1);
    if (layout::is_norm(row.role)) float32_size_ = layout::aligned_end(float32_size_ + row.count());
  }
  return places;
}

bool DividedValues::is_outside(layout::FlatSpan span) const {
  return span.end <= division_.blocks.back().begin || span.begin >= division_.blocks.front().end;
}

layout::FlatSpan DividedValues::span_of(size_t row) const {
  return {offsets_[row], offsets_[row] + c10::multiply_integers(shapes_[row])};
}

at::Tensor DividedValues::outside_of(layout::FlatSpan span) const {
  const int64_t first = division_.blocks.front().end;
  return span.begin >= first ? behind_.slice(0, span.begin - first, span.end - first)
                             : before_.slice(0, span.begin, span.end);
}

at::Tensor DividedValues::value(size_t row) const {
  if (!has_copies()) return rounded(row);
  if (float32_places_[row] >= 0) return view_of(float32_, float32_places_[row], shapes_[row]);
  return view_of(values_, offsets_[row], shapes_[row]);
}

at::Tensor DividedValues::rounded(size_t row) const {
  const layout::FlatSpan span = span_of(row);
  if (is_outside(span)) return view_of(outside_of(span), 0, shapes_[row]);
  const auto holds = [&span](layout::FlatSpan block) { return block.begin <= span.begin && span.end <= block.end; };
  const auto block = std::find_if(division_.blocks.begin(), division_.blocks.end(), holds);
  return view_of(of_block_[static_cast<size_t>(block - division_.blocks.begin())], span.begin - block->begin,
                 shapes_[row]);
}

void DividedValues::set(size_t row, const at::Tensor& value) {
  const layout::FlatSpan span = span_of(row);
  const at::Tensor flat = value.detach().reshape({-1});
  if (is_outside(span)) outside_of(span).copy_(flat);
  if (has_copies() && float32_places_[row] >= 0) float32_.narrow(0, float32_places_[row], flat.numel()).copy_(flat);
  for (const auto& [of, values] : own_) copy_common(flat, span, values, of);
}

at::Tensor DividedValues::own_of(layout::FlatSpan span) const {
  for (const auto& [of, values] : own_)
    if (of.begin <= span.begin && span.end <= of.end)
      return values.slice(0, span.begin - of.begin, span.end - of.begin);
  TORCH_CHECK(false, "DividedValues: this process does not keep the values from ", span.begin, " to ", span.end);
}

at::Tensor DividedValues::rounded_of(layout::FlatSpan span) const {
  return has_copies() && is_outside(span) ? outside_of(span) : at::Tensor();
}

void DividedValues::lend(size_t block, const at::Tensor& memory) const {
  const at::Tensor& values = of_block_[block];
  TORCH_CHECK(memory.numel() == values.numel() && memory.scalar_type() == compute_type_ && memory.is_contiguous(),
              "DividedValues: a block of ", values.numel(), " values cannot have the memory of ", memory.numel());
  values.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(memory.mutable_data_ptr(), memory.device()));
}

void DividedValues::take_back(size_t block) const {
  const at::Tensor& values = of_block_[block];
  values.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr(nullptr, values.device()));
}

void DividedValues::copy_own(size_t block, const at::Tensor& memory) const {
  const at::NoGradGuard no_grad;
  for (const auto& [of, values] : own_) copy_common(values, of, memory, division_.blocks[block]);
}

at::Tensor DividedValues::follow_own() const {
  if (!has_copies()) return {};
  const at::Tensor part = at::zeros({float32_size_}, float32_.options());
  for (size_t row = 0; row < shapes_.size(); ++row) {
    if (float32_places_[row] < 0) continue;
    const layout::FlatSpan span = span_of(row);
    for (const auto& [of, values] : own_)
      copy_common(values, of, part.narrow(0, float32_places_[row], span.end - span.begin), span);
  }
  for (const auto& [of, values] : own_)
    if (is_outside(of)) outside_of(of).copy_(values);
  return part;
}

void DividedValues::set_float32_vectors(const at::Tensor& all) const { float32_.copy_(all); }

int64_t DividedValues::bytes() const {
  size_t bytes = before_.nbytes() + behind_.nbytes();
  if (has_copies()) bytes += float32_.nbytes();
  for (const auto& [span, values] : own_)
    if (has_copies() || !is_outside(span)) bytes += values.nbytes();
  return static_cast<int64_t>(bytes);
}

}  // namespace gpt::parameters
