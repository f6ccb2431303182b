#include "gpt/parameters/named_tensors.h"

#include <ATen/ops/cat.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_map>
#include <unordered_set>

#include "gpt/core/error.h"
#include "gpt/layout/cut.h"

namespace gpt::parameters {

at::Tensor part_of(const layout::ParameterRow& row, const at::Tensor& whole) {
  if (!row.cut) return whole;
  std::vector<at::Tensor> pieces;
  for (const auto& [begin, length] : row.cut->pieces)
    pieces.push_back(whole.narrow(static_cast<int64_t>(row.cut->dim), begin, length));
  return at::cat(pieces, static_cast<int64_t>(row.cut->dim));
}

void put_in_whole(const layout::RowCut* cut, layout::FlatSpan of_part, const at::Tensor& values,
                  const at::Tensor& whole) {
  int64_t next = 0;
  for (const auto& [begin, end] : layout::stretches_in_whole(cut, of_part)) {
    whole.slice(0, begin, end).copy_(values.narrow(0, next, end - begin));
    next += end - begin;
  }
}

std::vector<at::Tensor> tensors_of_rows(const std::vector<layout::ParameterRow>& rows, const NamedTensors& tensors,
                                        std::string_view group) {
  const auto refuse = [&](const std::string& name, const std::string& why) {
    throw Error(ExitCode::checkpoint, fmt::format("{}/{} {}", group, name, why));
  };
  std::unordered_map<std::string, at::Tensor> named(tensors.begin(), tensors.end());
  std::vector<at::Tensor> result;
  for (const layout::ParameterRow& row : rows) {
    const auto found = named.find(row.name);
    if (found == named.end()) refuse(row.name, "is missing, but the model of the configuration has it");
    const at::Tensor& tensor = result.emplace_back(found->second);
    if (tensor.sizes() != row.whole_shape()) {
      refuse(row.name, fmt::format("has the shape [{}], and [{}] in the model of the configuration",
                                   fmt::join(tensor.sizes(), ", "), fmt::join(row.whole_shape(), ", ")));
    }
    named.erase(found);
  }
  if (!named.empty()) refuse(named.begin()->first, "is not part of the model of the configuration");
  return result;
}

NamedTensors tensors_named_by(const std::vector<layout::ParameterRow>& rows, const NamedTensors& tensors) {
  std::unordered_set<std::string> names;
  for (const layout::ParameterRow& row : rows) names.insert(row.name);
  NamedTensors named;
  for (const auto& tensor : tensors)
    if (names.contains(tensor.first)) named.push_back(tensor);
  return named;
}

}  // namespace gpt::parameters
