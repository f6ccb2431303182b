#include "gpt/parameters/named_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_map>

#include "gpt/core/error.h"

namespace gpt {

std::vector<at::Tensor> tensors_of_rows(const std::vector<ParameterRow>& rows, const NamedTensors& tensors,
                                        std::string_view group) {
  const auto refuse = [&](const std::string& name, const std::string& why) {
    throw Error(ExitCode::checkpoint, fmt::format("{}/{} {}", group, name, why));
  };
  std::unordered_map<std::string, at::Tensor> named(tensors.begin(), tensors.end());
  std::vector<at::Tensor> result;
  for (const ParameterRow& row : rows) {
    const auto found = named.find(row.name);
    if (found == named.end()) refuse(row.name, "is missing, but the model of the configuration has it");
    const at::Tensor& tensor = result.emplace_back(found->second);
    if (tensor.sizes() != row.shape) {
      refuse(row.name, fmt::format("has the shape [{}], and [{}] in the model of the configuration",
                                   fmt::join(tensor.sizes(), ", "), fmt::join(row.shape, ", ")));
    }
    named.erase(found);
  }
  if (!named.empty()) refuse(named.begin()->first, "is not part of the model of the configuration");
  return result;
}

}  // namespace gpt
