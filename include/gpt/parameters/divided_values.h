// The values of a model's parameters of which no process has all (ZeRO 3): each keeps its own spans of the flat buffer, which updates change.
// What the model computes with has memory of its own where it lies outside the blocks, and in a block only memory that is lent to it. Until
// then, and again from when that is taken back, its tensors have sizes and types but no data, whose address LibTorch refuses to give.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "gpt/layout/parameter_table.h"
#include "gpt/parameters/parameter_types.h"

namespace gpt::parameters {

struct ValueDivision {
  std::vector<layout::FlatSpan>
      blocks;  // by layer, neighbours in the flat buffer: from the last one's beginning to the first one's end; empty before a stage's first
  std::vector<layout::FlatSpan> own;  // in the order of the buffer; each lies in one block, or outside of all
};

struct OwnValues {
  layout::FlatSpan span;
  at::Tensor values;  // (end - begin) of the type in which values are kept
};

class DividedValues {
 public:
  // All rows are trained.
  DividedValues(const std::vector<layout::ParameterRow>& rows, const layout::FlatLayout& layout,
                const ParameterTypes& types, at::Device device, ValueDivision division);

  // Value and 16-bit copy of a row, with its shape. value() has data outside blocks, unless there are copies of 16 bits; and always where
  // it is a vector that is read in float32, a normalization's, beside copies. rounded() is undefined without copies.
  at::Tensor value(size_t row) const;
  at::Tensor rounded(size_t row) const;
  void set(size_t row, const at::Tensor& value);  // what this process keeps of it

  const std::vector<OwnValues>& own() const { return own_; }
  at::Tensor own_of(layout::FlatSpan span) const;  // throws c10::Error where this process does not keep all of it
  at::Tensor rounded_of(
      layout::FlatSpan span) const;  // copies that stay: undefined in a block, and where there are none
  bool has_copies() const { return kept_type_ != compute_type_; }

  const std::vector<layout::FlatSpan>& blocks() const { return division_.blocks; }
  at::ScalarType compute_type() const { return compute_type_; }
  // The block computes with this memory, (its length) of the compute type.
  void lend(size_t block, const at::Tensor& memory) const;
  void take_back(size_t block) const;
  void copy_own(size_t block,
                const at::Tensor& memory) const;  // what this process keeps of it, to its place in such memory

  bool is_outside(layout::FlatSpan span) const;        // of all blocks
  at::Tensor outside_of(layout::FlatSpan span) const;  // what the model computes with there
  // After a change of own values: what else follows from them in this process. The result holds its part of the vectors that are read in
  // float32, and zeros; the sum over all processes is what set_float32_vectors() takes. Undefined where there are none.
  at::Tensor follow_own() const;
  void set_float32_vectors(const at::Tensor& all) const;

  int64_t bytes() const;  // of values and copies, without memory that is lent

 private:
  layout::FlatSpan span_of(size_t row) const;
  // Where each vector that is read in float32 begins in the memory of all of them; -1 for other rows.
  std::vector<int64_t> places_of_float32(const std::vector<layout::ParameterRow>& rows);

  std::vector<std::vector<int64_t>> shapes_;  // of the rows
  std::vector<int64_t> offsets_;
  ValueDivision division_;
  at::ScalarType kept_type_, compute_type_;
  at::Tensor before_,
      behind_;  // of the compute type: what precedes the blocks in the flat buffer, and what follows them
  std::vector<at::Tensor> of_block_;  // of the compute type, without data of their own
  at::Tensor values_;                 // of the whole buffer and the kept type, without data: beside copies
  std::vector<int64_t> float32_places_;
  int64_t float32_size_ = 0;
  at::Tensor float32_;
  std::vector<OwnValues> own_;
};

}  // namespace gpt::parameters
