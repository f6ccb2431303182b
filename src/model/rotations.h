// The rotary tables of a model: a pair for each form of rotation that some block has, which the blocks of that form share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "gpt/config/block_form.h"
#include "gpt/ops/rotary.h"

namespace gpt::model {

class Rotations {
 public:
  // For so many positions.
  Rotations(int64_t positions, int64_t head_dim, at::Device device)
      : positions_(positions), head_dim_(head_dim), device_(device) {}

  // Which one a block of this form has; the same for equal forms. Tables of blocks that do not rotate are undefined.
  size_t add(const std::optional<RotaryForm>& form) {
    const auto known = std::find(forms_.begin(), forms_.end(), form);
    if (known != forms_.end()) return static_cast<size_t>(known - forms_.begin());
    forms_.push_back(form);
    tables_.push_back(form ? ops::rotary_tables(positions_, head_dim_, form->theta, device_, form->scaling)
                           : ops::RotaryTables());
    return tables_.size() - 1;
  }

  // All of them, for the positions before `length`, and for tokens with these positions (N).
  std::vector<ops::RotaryTables> before(int64_t length) const {
    return each([length](const at::Tensor& table) { return table.narrow(0, 0, length); });
  }
  std::vector<ops::RotaryTables> at(const at::Tensor& positions) const {
    return each([&positions](const at::Tensor& table) { return table.index_select(0, positions); });
  }

 private:
  template <typename Select>
  std::vector<ops::RotaryTables> each(const Select& select) const {
    std::vector<ops::RotaryTables> selected;
    for (const auto& [cos, sin] : tables_)
      selected.push_back(cos.defined() ? ops::RotaryTables{select(cos), select(sin)} : ops::RotaryTables());
    return selected;
  }

  int64_t positions_, head_dim_;
  at::Device device_;
  std::vector<std::optional<RotaryForm>> forms_;
  std::vector<ops::RotaryTables> tables_;  // of each form
};

}  // namespace gpt::model
