#include "stored_tensors.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <new>
#include <set>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/printable.h"

namespace gpt::checkpoint {
namespace {

struct Form {
  at::ScalarType dtype;
  std::vector<int64_t> shape;
};

Form form_of(const Json& description, uint64_t record_bytes) {
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
  if (overflow || record_bytes != static_cast<uint64_t>(bytes)) {
    throw Error(ExitCode::checkpoint, fmt::format("{} bytes cannot be {}", record_bytes, description.dump()));
  }
  return {dtype->type, std::move(shape)};
}

// Copied out of the map, so that the file may be replaced while its values are in use.
at::Tensor read_tensor(const Json& description, std::span<const std::byte> record) {
  const Form form = form_of(description, record.size());
  at::Tensor tensor = at::empty(form.shape, form.dtype);
  if (!record.empty()) std::memcpy(tensor.mutable_data_ptr(), record.data(), record.size());
  return tensor;
}

// Zeros, whose memory is taken only where something else is written. Throws std::bad_alloc.
at::Tensor unwritten_zeros(const Form& form) {
  const at::Tensor meta = at::empty(form.shape, at::TensorOptions(at::kMeta).dtype(form.dtype));
  if (meta.nbytes() == 0) return at::zeros(form.shape, form.dtype);
  void* const memory =
      mmap(nullptr, meta.nbytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  madvise(memory, meta.nbytes(), MADV_NOHUGEPAGE);  // a huge page would be taken whole for a few values
  const auto free = [bytes = meta.nbytes()](void* mapped) { munmap(mapped, bytes); };
  return at::from_blob(memory, form.shape, free, at::TensorOptions(form.dtype));
}

// Which element stands for a value first. Below one element for each value, it may stand for a block or for a row: the earlier of the two.
double first_element(int64_t value, double of_value) {
  const int64_t block = value / layout::kParameterAlignment;
  const double of_row = static_cast<double>(value) * of_value;
  return of_value < 1 ? std::min(static_cast<double>(block), of_row) : of_row;
}

// What stands for these of a parameter's `count` values: each value may have an element, or each block or row of them.
at::Tensor read_part(const Json& description, const container::ContainerReader& file, const std::string& record,
                     const std::vector<layout::FlatSpan>& ranges, int64_t count) {
  const Form form = form_of(description, file.size(record));
  const at::Tensor tensor = unwritten_zeros(form);
  const auto elements = static_cast<double>(tensor.numel()), of_value = elements / static_cast<double>(count);
  for (const auto& [begin, end] : ranges) {
    const auto first = static_cast<int64_t>(std::floor(first_element(begin, of_value))),
               last = static_cast<int64_t>(std::min(elements, std::ceil(static_cast<double>(end) * of_value)));
    const auto size = static_cast<int64_t>(tensor.element_size());
    const std::span<const std::byte> bytes =
        file.record(record, static_cast<uint64_t>(first * size), static_cast<uint64_t>(last * size));
    std::memcpy(static_cast<std::byte*>(tensor.mutable_data_ptr()) + first * size, bytes.data(), bytes.size());
  }
  return tensor;
}

// A part of a tensor's values in the host's memory: the others might not fit there.
at::Tensor host_bytes(const at::Tensor& tensor, uint64_t begin, uint64_t end) {
  if (tensor.numel() == 0) return at::empty({0}, at::kByte);
  const auto size = static_cast<int64_t>(tensor.element_size());
  const auto first = static_cast<int64_t>(begin) / size, last = static_cast<int64_t>(end) / size;
  return tensor.detach().reshape({-1}).narrow(0, first, last - first).cpu().contiguous();
}

}  // namespace

Json descriptions_of(const parameters::NamedTensors& tensors) {
  Json descriptions = Json::array();
  for (const auto& [name, tensor] : tensors) {
    descriptions.push_back({{"name", name}, {"dtype", type_of(tensor).name}, {"shape", tensor.sizes().vec()}});
  }
  return descriptions;
}

void write_records(const std::string& path, const std::vector<TextRecord>& texts,
                   const parameters::NamedTensors& tensors) {
  std::vector<container::RecordPlan> plan;
  for (const auto& [name, text] : texts) plan.push_back({name, text.size()});
  for (const auto& [name, tensor] : tensors) plan.push_back({record_of(name), tensor.nbytes()});
  container::ContainerWriter file(path, plan);
  const std::vector<container::RecordPiece>& pieces = file.pieces();
  at::parallel_for(0, static_cast<int64_t>(pieces.size()), /*grain_size=*/1, [&](int64_t first, int64_t last) {
    const at::NoGradGuard no_gradients;
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
      const auto& [record, begin, end] = pieces[i];
      if (record < texts.size()) {
        file.write(i, std::as_bytes(std::span(texts[record].text).subspan(begin, end - begin)));
      } else {
        const at::Tensor values = host_bytes(tensors[record - texts.size()].second, begin, end);
        file.write(i, std::span(static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()));
      }
    }
  });
  file.commit();
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

parameters::NamedTensors read_tensors(const Json& descriptions, const container::ContainerReader& file,
                                      std::string_view prefix, parameters::RowPacker* packer) {
  std::set<std::string> seen;
  parameters::NamedTensors tensors;
  for (const Json& description : descriptions.get_ref<const Json::array_t&>()) {
    const std::string& name = description.at("name").get_ref<const std::string&>();
    if (!seen.insert(name).second) throw Error(ExitCode::checkpoint, fmt::format("tensor '{}' is listed twice", name));
    if (!name.starts_with(prefix)) continue;
    const at::Tensor tensor = read_tensor(description, file.record(record_of(name)));
    tensors.emplace_back(name, packer ? packer->take(name.substr(prefix.size()), tensor) : tensor);
  }
  return tensors;
}

parameters::NamedTensors read_needed_tensors(const Json& descriptions, const container::ContainerReader& file,
                                             const ModelConfig& model, const ValueRanges& needed_state,
                                             const ValueRanges* needed_weights) {
  std::map<std::string, int64_t, std::less<>> counts;
  for (const layout::ParameterRow& row : layout::parameter_table(model)) counts[row.name] = row.count();
  std::set<std::string> seen;
  parameters::NamedTensors tensors;
  for (const Json& description : descriptions.get_ref<const Json::array_t&>()) {
    const std::string& name = description.at("name").get_ref<const std::string&>();
    if (!seen.insert(name).second) throw Error(ExitCode::checkpoint, fmt::format("tensor '{}' is listed twice", name));
    const std::string_view slot = std::string_view(name).substr(0, name.find('/')),
                           parameter = std::string_view(name).substr(std::min(name.size(), slot.size() + 1));
    const auto count = counts.find(parameter);
    const bool is_state =
        std::find(optim::kOptimizerSlots.begin(), optim::kOptimizerSlots.end(), slot) != optim::kOptimizerSlots.end();
    const ValueRanges* const needed = is_state ? &needed_state : slot == "model" ? needed_weights : nullptr;
    if (!needed || count == counts.end()) {
      tensors.emplace_back(name, read_tensor(description, file.record(record_of(name))));
      continue;
    }
    const auto ranges = needed->find(parameter);
    tensors.emplace_back(name, read_part(description, file, record_of(name),
                                         ranges == needed->end() ? std::vector<layout::FlatSpan>() : ranges->second,
                                         count->second));
  }
  return tensors;
}

std::string in_one_line(std::string_view text) {
  constexpr size_t kLongest = 400;
  return shortened(printable_line(text), kLongest);
}

}  // namespace gpt::checkpoint
