#include "gpt/checkpoint/quantized_file.h"

#include <ATen/ops/aminmax.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "consistency.h"
#include "gpt/config/load.h"
#include "gpt/container/container.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/hash.h"
#include "parts.h"
#include "stored_tensors.h"

namespace gpt::checkpoint {
namespace {

using namespace checkpoint;

constexpr int64_t kForm = 1;
constexpr const char *kCodes = ".codes", *kScales = ".scales", *kOffsets = ".offsets";

[[noreturn]] void refuse(const std::string& why) { throw Error(ExitCode::checkpoint, why); }

parameters::NamedTensors named(const model::QuantizedTensors& tensors) {
  parameters::NamedTensors all = tensors.others;
  for (const auto& [name, weight] : tensors.matrices) {
    all.emplace_back(name + kCodes, weight.codes);
    all.emplace_back(name + kScales, weight.scales);
    if (weight.offsets.defined()) all.emplace_back(name + kOffsets, weight.offsets);
  }
  return all;
}

// The tensors of a file, each of which is to be taken once.
class StoredTensors {
 public:
  explicit StoredTensors(parameters::NamedTensors tensors) : tensors_(tensors.begin(), tensors.end()) {}

  // Finite, and not less than `least`.
  at::Tensor take(const std::string& name, at::ScalarType type, const std::vector<int64_t>& shape, double least) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) refuse(fmt::format("'{}' is missing", name));
    at::Tensor tensor = std::move(found->second);
    tensors_.erase(found);
    if (tensor.scalar_type() != type || tensor.sizes() != shape) {
      refuse(fmt::format("'{}' is {} [{}] instead of {} [{}]", name, type_of(tensor).name,
                         fmt::join(tensor.sizes(), ", "), c10::toString(type), fmt::join(shape, ", ")));
    }
    const auto [low, high] = at::aminmax(tensor);  // both NaN if any value is
    if (!(low.item<double>() >= least) || !std::isfinite(high.item<double>()))
      refuse(fmt::format("'{}' holds values that it cannot have", name));
    return tensor;
  }

  void require_none_left() const {
    if (!tensors_.empty()) refuse(fmt::format("'{}' is not part of the model", tensors_.begin()->first));
  }

 private:
  std::map<std::string, at::Tensor> tensors_;
};

parameters::QuantizedWeight take_weight(StoredTensors& stored, const layout::ParameterRow& row,
                                        parameters::QuantizedType type) {
  constexpr double kLeast = std::numeric_limits<double>::lowest(), kLeastCode = -127;
  parameters::QuantizedWeight weight{type, row.shape[0], row.shape[1], {}, {}, {}};
  const std::vector<int64_t> of_groups{weight.rows, weight.groups()};
  if (type == parameters::QuantizedType::int8) {
    weight.codes = stored.take(row.name + kCodes, at::kChar, row.shape, kLeastCode);
    weight.scales = stored.take(row.name + kScales, at::kFloat, of_groups, 0);
  } else {
    weight.codes = stored.take(row.name + kCodes, at::kByte, {weight.rows, at::divup(weight.columns, 2)}, 0);
    weight.scales = stored.take(row.name + kScales, at::kBFloat16, of_groups, 0);
    weight.offsets = stored.take(row.name + kOffsets, at::kBFloat16, of_groups, kLeast);
  }
  return weight;
}

model::QuantizedTensors take_tensors(parameters::NamedTensors tensors, const ModelConfig& config,
                                     parameters::QuantizedType type) {
  constexpr double kLeast = std::numeric_limits<double>::lowest();
  StoredTensors stored(std::move(tensors));
  model::QuantizedTensors result{.type = type, .matrices = {}, .others = {}};
  for (const layout::ParameterRow& row : layout::parameter_table(config)) {
    if (const auto of_row = model::quantized_type(row, type)) {
      result.matrices.emplace_back(row.name, take_weight(stored, row, *of_row));
    } else {
      result.others.emplace_back(row.name, stored.take(row.name, at::kFloat, row.shape, kLeast));
    }
  }
  stored.require_none_left();
  return result;
}

parameters::QuantizedType type_named(const std::string& name) {
  for (const parameters::QuantizedType type : {parameters::QuantizedType::int8, parameters::QuantizedType::int4})
    if (name == name_of(type)) return type;
  refuse(fmt::format("weights of type '{}' are not known", name));
}

QuantizedFile read_parts(const container::ContainerReader& file) {
  QuantizedFile model;
  const Json description = read_description(file.text(kQuantizedRecord));
  if (const int64_t form = count_of(description.at("form")); form != kForm)
    refuse(fmt::format("it has form {}, which only another version of this program reads", form));
  config::read_yaml(file.text("config.yaml"), "config.yaml", model.config);
  model.tokenizer = file.text("tokenizer.json");
  if (description.at("tokenizer") != hash128(model.tokenizer))
    refuse("tokenizer.json is not the tokenizer of this model");
  model.step = count_of(description.at("step"));
  if (description.contains("sample_start")) model.sample_start = count_of(description.at("sample_start"));
  if (description.contains("text_format")) model.text_format = description["text_format"].get<tokenizer::TextFormat>();
  require_usable(model.config, model.tokenizer, model.sample_start, model.text_format);
  const parameters::QuantizedType type = type_named(description.at("type").get_ref<const std::string&>());
  model.tensors = take_tensors(read_tensors(description.at("tensors"), file), model.config.model, type);
  return model;
}

}  // namespace

bool is_quantized(const std::string& path) {
  constexpr size_t kBeginning = 64;  // a header of 30 bytes, and the name of the first record
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  const MappedFile file(path, ExitCode::checkpoint);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              std::min(kBeginning, file.bytes().size()));
  return text.find(fmt::format("/{}", kQuantizedRecord)) != std::string_view::npos;
}

void write_quantized(const std::string& path, const QuantizedFile& model) {
  const parameters::NamedTensors tensors = named(model.tensors);
  Json description = {
      {"form", kForm},      {"type", name_of(model.tensors.type)},   {"group", parameters::QuantizedWeight::kGroup},
      {"step", model.step}, {"tokenizer", hash128(model.tokenizer)}, {"tensors", descriptions_of(tensors)}};
  if (model.sample_start) description["sample_start"] = *model.sample_start;
  if (model.text_format) description["text_format"] = *model.text_format;
  write_records(path,
                {{kQuantizedRecord, description.dump(1)},
                 {"config.yaml", config::dump(model.config)},
                 {"tokenizer.json", model.tokenizer}},
                tensors);
}

QuantizedFile read_quantized(const std::string& path) {
  const container::ContainerReader file(path);
  std::string why;
  try {
    return read_parts(file);
  } catch (const Json::exception& fault) { why = fault.what(); } catch (const Error& fault) {
    why = fault.what();
  }
  throw Error(ExitCode::checkpoint, fmt::format("{} cannot be used: {}", path, in_one_line(why)));
}

}  // namespace gpt::checkpoint
