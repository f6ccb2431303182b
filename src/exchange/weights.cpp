#include "gpt/exchange/weights.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/printable.h"
#include "gpt/exchange/adapter_import.h"
#include "gpt/exchange/safetensors.h"
#include "gpt/layout/parameter_table.h"
#include "text_part.h"

namespace gpt::exchange {
namespace {

namespace fs = std::filesystem;

constexpr const char *kOnlyFile = "model.safetensors", *kIndex = "model.safetensors.index.json";

struct WeightType {
  at::ScalarType type;
  const char* name;  // the format's
};
constexpr WeightType kWeightTypes[] = {{at::kFloat, "F32"}, {at::kHalf, "F16"}, {at::kBFloat16, "BF16"}};

const char* dtype_of(at::ScalarType type) {
  for (const WeightType& known : kWeightTypes) {
    if (known.type == type) return known.name;
  }
  throw std::logic_error("weights are written as float32, float16 or bfloat16");
}

// The name of a tensor within a message: it may be anything.
std::string tensor_name(std::string_view name) {
  constexpr size_t kLongest = 100;
  return fmt::format("'{}'", shortened(printable_line(name), kLongest));
}

template <typename... Arguments>
[[noreturn]] void refuse(const std::string& where, fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  throw Error(ExitCode::checkpoint,
              fmt::format("{} cannot be used: {}", where, fmt::format(text, std::forward<Arguments>(arguments)...)));
}

// The files that hold a model, and which tensors of them count.
class WeightFiles {
 public:
  explicit WeightFiles(const std::string& path) : where_(path) {
    std::error_code ignored;
    const std::string index = path + "/" + kIndex;
    if (!fs::is_directory(path, ignored)) {
      add_all_of(path);
    } else if (fs::exists(index, ignored) && !fs::exists(path + "/" + kOnlyFile, ignored)) {
      add_indexed(path, index);
    } else {
      require_readable_form(path);
      add_all_of(path + "/" + kOnlyFile);
    }
  }

  const std::string& where() const { return where_; }
  std::vector<std::string> paths() const {
    std::vector<std::string> paths;
    for (const auto& file : files_) paths.push_back(file->path());
    return paths;
  }
  // By their names in a model of text.
  const std::map<std::string, const StoredTensor*>& tensors() const { return tensors_; }
  // A base model without its head was saved without the prefix of its names.
  const StoredTensor* find(const std::string& name) const {
    for (const char* prefix : {"", "transformer.", "model."}) {
      if (!name.starts_with(prefix)) continue;
      const auto found = tensors_.find(name.substr(std::strlen(prefix)));
      if (found != tensors_.end()) return found->second;
    }
    const auto alias = aliases_.find(name);
    const auto found = alias == aliases_.end() ? tensors_.end() : tensors_.find(alias->second);
    return found == tensors_.end() ? nullptr : found->second;
  }

 private:
  // Folders of older versions have pickles.
  static void require_readable_form(const std::string& folder) {
    std::error_code ignored;
    for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
      if (!fs::exists(folder + "/" + name, ignored) || fs::exists(folder + "/" + kOnlyFile, ignored)) continue;
      refuse(folder,
             "its weights are in pytorch_model.bin, a Python pickle, which is never opened; transformers writes "
             "model.safetensors with python3 -c \"from transformers import AutoModelForCausalLM as Model; "
             "Model.from_pretrained('{0}', dtype='auto').save_pretrained('{0}')\"",
             folder);
    }
  }

  const SafetensorsReader& open(const std::string& path) {
    files_.push_back(std::make_unique<SafetensorsReader>(path));
    aliases_.insert(files_.back()->metadata().begin(), files_.back()->metadata().end());
    return *files_.back();
  }

  void add_all_of(const std::string& path) {
    for (const StoredTensor& tensor : open(path).tensors()) add(tensor);
  }

  void add_indexed(const std::string& folder, const std::string& index) {
    constexpr SizeLimit kIndexSize{"an index of weights", uint64_t{64} << 20};
    const auto parsed =
        nlohmann::json::parse(read_file(index, ExitCode::checkpoint, kIndexSize), nullptr, /*allow_exceptions=*/false);
    const bool has_map = parsed.is_object() && parsed.contains("weight_map") && parsed["weight_map"].is_object();
    if (!has_map) refuse(index, "it has no weight_map of names and files");
    std::map<std::string, const SafetensorsReader*> opened;
    for (const auto& [name, value] : parsed["weight_map"].items()) {
      const std::string file = value.is_string() ? value.get<std::string>() : "";
      if (!file.ends_with(".safetensors") || file.find('/') != std::string::npos)
        refuse(index, "{} lies in {}; the name of a .safetensors file beside it is needed", tensor_name(name),
               tensor_name(value.dump()));
      const SafetensorsReader*& reader = opened[file];
      if (!reader) reader = &open(folder + "/" + file);
      const StoredTensor* const tensor = reader->find(name);
      if (!tensor) refuse(reader->path(), "tensor {} is missing, which the index places here", tensor_name(name));
      add(*tensor);
    }
  }

  void add(const StoredTensor& tensor) {
    const std::string name = name_in_text_model(tensor.name);
    if (!name.empty()) tensors_[name] = &tensor;
  }

  std::string where_;
  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  std::map<std::string, const StoredTensor*> tensors_;
  // Only one of several tensors that share their values is stored. safetensors' save_model() notes under the names of the others which it is.
  std::map<std::string, std::string> aliases_;
};

// Copied out of the map, so that the file may be replaced while its values are in use.
at::Tensor values_of(const StoredTensor& stored, const std::string& where) {
  const auto known = std::find_if(std::begin(kWeightTypes), std::end(kWeightTypes),
                                  [&](const WeightType& type) { return type.name == stored.dtype; });
  if (known == std::end(kWeightTypes))
    refuse(where, "tensor {} is {}; F32, F16 or BF16 is needed", tensor_name(stored.name), stored.dtype);
  at::Tensor values = at::empty(stored.shape, known->type);
  if (!stored.bytes.empty()) std::memcpy(values.mutable_data_ptr(), stored.bytes.data(), stored.bytes.size());
  if (!is_finite(values)) refuse(where, "tensor {} holds values that are not finite", tensor_name(stored.name));
  return values;
}

// A tied table may be there under the name of the head alone.
const StoredTensor* find_part(const WeightFiles& files, const Counterpart& part, bool is_tied) {
  const StoredTensor* const stored = files.find(part.name);
  return stored || !is_tied || part.row != kEmbedding ? stored : files.find(kHead);
}

// The tensor of each part. Names and shapes of all are checked before memory is taken for any.
std::vector<const StoredTensor*> stored_parts(const WeightFiles& files, const std::vector<Counterpart>& parts,
                                              bool is_tied) {
  std::vector<const StoredTensor*> found;
  for (const Counterpart& part : parts) {
    const StoredTensor* const stored = find_part(files, part, is_tied);
    if (!stored) refuse(files.where(), "tensor {} is missing", tensor_name(part.name));
    if (stored->shape != part.shape) {
      refuse(files.where(), "tensor {} has the shape [{}]; by config.json it is [{}]", tensor_name(stored->name),
             fmt::join(stored->shape, ", "), fmt::join(part.shape, ", "));
    }
    found.push_back(stored);
  }
  return found;
}

// Masks and tables that transformers once saved beside the weights, and computes now.
bool is_computed(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with(".rotary_emb.inv_freq");
}

// A tied head may be there, as long as it is the embedding.
void require_tied(const WeightFiles& files, const StoredTensor& head, const at::Tensor& embedding) {
  if (head.shape == embedding.sizes() && values_of(head, files.where()).to(at::kFloat).equal(embedding)) return;
  refuse(files.where(),
         "tensor {} is not the embedding, which config.json has tied it to: set tie_word_embeddings to false there",
         tensor_name(head.name));
}

// A head that is there beside the tensors that are used, as one that is tied may be; or null. What else there is, is refused.
const StoredTensor* head_beside(const WeightFiles& files, const std::vector<const StoredTensor*>& stored,
                                const Family& family) {
  const StoredTensor* head = nullptr;
  const std::set<const StoredTensor*> used(stored.begin(), stored.end());
  for (const auto& [name, other] : files.tensors()) {
    if (used.count(other) || is_computed(name)) continue;
    if (name != kHead)
      refuse(files.where(), "tensor {} has no place in {}'s form, as this program has it", tensor_name(name),
             family.name);
    head = other;
  }
  return head;
}

using TensorsByName = std::map<std::string, at::Tensor>;

std::vector<TensorsByName> divided(const TensorsByName& tensors, at::ScalarType type, double most_bytes) {
  std::vector<TensorsByName> parts(1);
  double bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    const auto size = static_cast<double>(tensor.numel()) * static_cast<double>(at::elementSize(type));
    if (!parts.back().empty() && bytes + size > most_bytes) parts.emplace_back(), bytes = 0;
    parts.back()[name] = tensor, bytes += size;
  }
  return parts;
}

// As transformers writes it.
std::string index_json(const std::vector<TensorsByName>& parts, const std::vector<std::string>& names,
                       at::ScalarType type) {
  nlohmann::ordered_json index{{"metadata", {{"total_size", 0}}}, {"weight_map", nlohmann::ordered_json::object()}};
  int64_t values = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const auto& [name, tensor] : parts[i]) index["weight_map"][name] = names[i], values += tensor.numel();
  }
  index["metadata"]["total_size"] = values * static_cast<int64_t>(at::elementSize(type));
  return index.dump(2) + "\n";
}

}  // namespace

bool is_finite(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return true;
  const auto [low, high] = at::aminmax(tensor);  // both NaN if any value is
  return std::isfinite(low.item<double>()) && std::isfinite(high.item<double>());
}

std::map<std::string, at::Tensor> to_hugging_face(const ModelConfig& model, const Family& family,
                                                  const parameters::NamedTensors& weights) {
  std::map<std::string, at::Tensor> result;
  for (const Counterpart& part : counterparts(model, family)) {
    if (part.is_zero) {
      result[part.name] = at::zeros(part.shape);
      continue;
    }
    const auto own =
        std::find_if(weights.begin(), weights.end(), [&](const auto& weight) { return weight.first == part.row; });
    const at::Tensor rows = own->second.detach().narrow(0, part.begin, part.size);
    result[part.name] = part.is_transposed ? rows.t() : rows;
  }
  return result;
}

std::unique_ptr<SafetensorsWriter> written_weights(const std::string& path,
                                                   const std::map<std::string, at::Tensor>& tensors,
                                                   at::ScalarType type) {
  const char* const dtype = dtype_of(type);
  std::vector<TensorForm> forms;
  for (const auto& [name, tensor] : tensors) forms.push_back({name, dtype, tensor.sizes().vec()});
  auto file = std::make_unique<SafetensorsWriter>(path, forms);
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor values = tensor.to(type).contiguous();  // one at a time: a copy of all might not fit
    if (!is_finite(values)) {
      throw Error(ExitCode::numerics,
                  fmt::format("{} is not written: '{}' holds values that are not finite in {}; use --dtype float32",
                              path, name, dtype));
    }
    file->add({static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
  }
  return file;
}

WeightsInFolder::WeightsInFolder(std::string folder, const TensorsByName& tensors, at::ScalarType type,
                                 double most_bytes)
    : folder_(std::move(folder)) {
  const std::vector<TensorsByName> parts = divided(tensors, type, most_bytes);
  for (size_t i = 0; i < parts.size(); ++i) {
    names_.push_back(parts.size() == 1 ? kOnlyFile
                                       : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts.size()));
    files_.push_back(written_weights(folder_ + "/" + names_.back(), parts[i], type));
  }
  if (parts.size() == 1) return;
  index_ = std::make_unique<AtomicFile>(folder_ + "/" + kIndex);
  index_->write(index_json(parts, names_, type));
}

void WeightsInFolder::commit() {
  for (const auto& file : files_) file->commit();
  if (index_) index_->commit(), names_.emplace_back(kIndex);
  for (const std::string& name : names_in(folder_)) {
    const bool is_weights =
        name == kOnlyFile || name == kIndex || (name.starts_with("model-") && name.ends_with(".safetensors"));
    std::error_code ignored;
    if (is_weights && std::find(names_.begin(), names_.end(), name) == names_.end())
      fs::remove(folder_ + "/" + name, ignored);
  }
}

std::map<std::string, at::Tensor> read_tensors(const std::string& path) {
  const SafetensorsReader file(path);
  std::map<std::string, at::Tensor> tensors;
  for (const StoredTensor& stored : file.tensors()) tensors[stored.name] = values_of(stored, path).to(at::kFloat);
  return tensors;
}

parameters::NamedTensors read_weights(const std::string& path, const ModelConfig& model, const Family& family,
                                      parameters::RowPacker* packer) {
  if (holds_adapter(path)) {
    parameters::NamedTensors weights = read_weights(base_of_adapter(path), model, family);
    apply_adapter(adapter_of(path, read_tensors(file_of_adapter(path)), model, family), weights);
    if (packer)
      for (auto& [name, tensor] : weights) tensor = packer->take(name, tensor);
    return weights;
  }
  const WeightFiles files(path);
  const std::vector<Counterpart> parts = counterparts(model, family);
  const std::vector<const StoredTensor*> stored = stored_parts(files, parts, model.tie_weights);
  const StoredTensor* const head = head_beside(files, stored, family);
  parameters::NamedTensors result;
  for (const layout::ParameterRow& row : layout::parameter_table(model)) {
    const at::Tensor whole = at::zeros(row.shape);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].row != row.name) continue;
      const at::Tensor values = values_of(*stored[i], path);
      whole.narrow(0, parts[i].begin, parts[i].size).copy_(parts[i].is_transposed ? values.t() : values);
    }
    if (head && row.name == kEmbedding) require_tied(files, *head, whole.narrow(0, 0, *model.vocab_size));
    result.emplace_back(row.name, packer ? packer->take(row.name, whole) : whole);
  }
  return result;
}

std::vector<std::string> weight_files(const std::string& path) {
  if (!holds_adapter(path)) return WeightFiles(path).paths();
  std::vector<std::string> files = weight_files(base_of_adapter(path));
  files.push_back(file_of_adapter(path));
  return files;
}

}  // namespace gpt::exchange
