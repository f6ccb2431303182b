#include "stored_tensors.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/printable.h"

namespace gpt::checkpoint {
namespace {

at::Tensor read_tensor(const Json& description, std::span<const std::byte> record) {
  const std::string& dtype_name = description.at("dtype").get_ref<const std::string&>();
  const auto dtype = std::find_if(tensor_types().begin(), tensor_types().end(),
                                  [&](const TensorType& d) { return d.name == dtype_name; });
  if (dtype == tensor_types().end()) throw Error(ExitCode::checkpoint, "unknown dtype in " + description.dump());

  std::vector<int64_t> shape;
  auto bytes = static_cast<int64_t>(c10::elementSize(dtype->type));
  bool overflow = false;
  for (const Json& size : description.at("shape").get_ref<const Json::array_t&>()) {
    shape.push_back(count_of(size));
    overflow |= __builtin_mul_overflow(bytes, std::max<int64_t>(shape.back(), 1), &bytes);
  }
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) bytes = 0;
  if (overflow || record.size() != static_cast<uint64_t>(bytes)) {
    throw Error(ExitCode::checkpoint, fmt::format("{} bytes cannot be {}", record.size(), description.dump()));
  }
  // Copied out of the map, so that the file may be replaced while its values are in use.
  at::Tensor tensor = at::empty(shape, dtype->type);
  if (bytes > 0) std::memcpy(tensor.mutable_data_ptr(), record.data(), record.size());
  return tensor;
}

}  // namespace

Json descriptions_of(const NamedTensors& tensors) {
  Json descriptions = Json::array();
  for (const auto& [name, tensor] : tensors) {
    descriptions.push_back({{"name", name}, {"dtype", type_of(tensor).name}, {"shape", tensor.sizes().vec()}});
  }
  return descriptions;
}

void add_tensors(ContainerWriter& file, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor host = tensor.detach().cpu().contiguous();  // one at a time: a copy of all might not fit
    file.add("data/" + name, std::span(static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()));
  }
}

Json read_description(std::string_view text) {
  constexpr size_t kLargest = 16 << 20;
  constexpr int kDeepest = 8;
  if (text.size() > kLargest) throw Error(ExitCode::checkpoint, "it is too large");
  return Json::parse(text, [](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest) throw Error(ExitCode::checkpoint, "it is nested too deeply");
    return true;
  });
}

NamedTensors read_tensors(const Json& descriptions, const ContainerReader& file) {
  std::set<std::string> seen;
  NamedTensors tensors;
  for (const Json& description : descriptions.get_ref<const Json::array_t&>()) {
    const std::string& name = description.at("name").get_ref<const std::string&>();
    if (!seen.insert(name).second) throw Error(ExitCode::checkpoint, fmt::format("tensor '{}' is listed twice", name));
    tensors.emplace_back(name, read_tensor(description, file.record("data/" + name)));
  }
  return tensors;
}

std::string in_one_line(std::string_view text) {
  constexpr size_t kLongest = 400;
  return shortened(printable_line(text), kLongest);
}

}  // namespace gpt::checkpoint
