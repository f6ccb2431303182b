#include "gpt/exchange/adapter_import.h"

#include <ATen/ops/mm.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "config_settings.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/printable.h"
#include "gpt/exchange/hugging_face.h"

namespace gpt::exchange {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char *kAdapterSettings = "adapter_config.json", *kAdapterWeights = "adapter_model.safetensors",
                     *kBasePath = "base_model_name_or_path";

json read_adapter_settings(const std::string& path) {
  constexpr SizeLimit kSize{"an adapter_config.json", 1 << 20};
  json settings = json::parse(read_file(path, ExitCode::checkpoint, kSize), nullptr, /*allow_exceptions=*/false);
  if (!settings.is_object()) throw Error(ExitCode::checkpoint, fmt::format("{}: it is no JSON object", path));
  return settings;
}

// What of peft's settings changes what an adapter computes, beyond a product of two factors. Keys that are missing mean what these are.
void require_plain_lora(const ConfigSettings& settings) {
  settings.must_be("peft_type", {"LORA"});
  settings.must_be("bias", {"none"});
  for (const char* key : {"use_dora", "use_qalora", "use_bdlora", "lora_bias"}) settings.must_be(key, {false});
  for (const char* key : {"layer_replication", "trainable_token_indices", "target_parameters",
                          "alora_invocation_tokens", "arrow_config", "kasa_config"})
    settings.must_be_absent(key);
  // The others subtract what they begin with from the model's weights.
  settings.must_be("init_lora_weights", {true, false, "gaussian", "orthogonal", "eva"});
}

// The value that a pattern has for a module: its name, or the end of it from a dot on, as peft matches it.
double value_for(const json& settings, const char* key, const std::string& module, double otherwise,
                 const ConfigSettings& named) {
  if (!settings.contains(key) || !settings[key].is_object()) return otherwise;
  for (const auto& [pattern, value] : settings[key].items()) {
    if (pattern.find_first_of("\\^$*+?()[]{}|") != std::string::npos)
      named.refuse(key, "names of modules are read, and no regular expressions");
    if (module != pattern && !module.ends_with("." + pattern)) continue;
    if (!value.is_number()) named.refuse(key, "a number for each module is needed");
    return value.get<double>();
  }
  return otherwise;
}

// Both factors of a module, by its name.
struct Factors {
  at::Tensor a, b;
};

// The tensors of the file: factors by the name of their module, all others by their own.
struct Contents {
  std::map<std::string, Factors> factors;
  std::map<std::string, at::Tensor> whole;
};

Contents contents_of(const std::string& path, const std::map<std::string, at::Tensor>& tensors) {
  constexpr std::string_view kBeginning = "base_model.model.", kA = ".lora_A.weight", kB = ".lora_B.weight";
  Contents found;
  for (const auto& [full_name, values] : tensors) {
    if (!full_name.starts_with(kBeginning))
      throw Error(ExitCode::checkpoint, fmt::format("{}: tensor '{}' is of no model; its name must begin with {}", path,
                                                    shortened(printable_line(full_name), 100), kBeginning));
    const std::string name = full_name.substr(kBeginning.size());
    const bool is_a = name.ends_with(kA);
    if (values.dim() == 2 && (is_a || name.ends_with(kB))) {
      Factors& factors = found.factors[name.substr(0, name.size() - kA.size())];
      (is_a ? factors.a : factors.b) = values;
    } else {
      found.whole[name] = values;
    }
  }
  return found;
}

// Which of theirs has this name, where the model's own name may be missing, as of a base model without its head; or null.
const Counterpart* part_named(const std::vector<Counterpart>& parts, const std::string& name) {
  for (const char* prefix : {"", "model.", "transformer."}) {
    const auto part = std::ranges::find(parts, prefix + name, &Counterpart::name);
    if (part != parts.end()) return &*part;
  }
  return nullptr;
}

// The tensors of a folder, for the model that they are of.
class FolderReader {
 public:
  FolderReader(const std::string& folder, const ModelConfig& model, const Family& family)
      : path_(folder + "/" + kAdapterSettings),
        file_(file_of_adapter(folder)),
        settings_(read_adapter_settings(path_)),
        named_(settings_, "", path_),
        family_(family),
        is_tied_(model.tie_weights),
        parts_(counterparts(model, family)) {
    require_plain_lora(named_);
  }

  std::vector<checkpoint::WeightAdapter> added(const std::map<std::string, Factors>& all) const {
    std::vector<checkpoint::WeightAdapter> adapters;
    for (const auto& [module, factors] : all) adapters.push_back(added_to(module, factors));
    return adapters;
  }

  std::vector<WholeRows> whole(const std::map<std::string, at::Tensor>& all) const {
    std::vector<WholeRows> found;
    for (const auto& [name, values] : all) {
      const Counterpart* const part = part_named(parts_, name);
      if (!part && is_tied_ && name == kHead) continue;
      if (!part) refuse(name, fmt::format("has no place in {}'s form, as this program has it", family_.name));
      if (values.sizes() != part->shape)
        refuse(name, fmt::format("is [{}], and the model's [{}]", fmt::join(values.sizes(), ", "),
                                 fmt::join(part->shape, ", ")));
      found.push_back({part->row, part->begin, part->is_transposed ? values.t() : values});
      if (is_tied_ && part->row == kEmbedding) require_same_head(name, values, all);
    }
    if (is_tied_ && all.contains(kHead) && std::ranges::find(found, kEmbedding, &WholeRows::parameter) == found.end())
      refuse_parted(kHead);
    return found;
  }

  // What modules_to_save names is there.
  void require_saved(const std::map<std::string, at::Tensor>& whole) const {
    constexpr const char* kKey = "modules_to_save";
    if (!settings_.contains(kKey) || !settings_[kKey].is_array()) return;
    for (const json& one : settings_[kKey]) {
      const std::string module = one.is_string() ? one.get<std::string>() : "";
      const auto is_of_module = [&module](const auto& tensor) {
        return tensor.first.substr(0, tensor.first.rfind('.')).ends_with(module);
      };
      if (module.empty() || std::ranges::none_of(whole, is_of_module))
        named_.refuse(kKey, fmt::format("{} has no tensor of {}", kAdapterWeights, printable_line(one.dump())));
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& why) const {
    throw Error(ExitCode::checkpoint, fmt::format("{}: '{}' {}", file_, shortened(printable_line(name), 100), why));
  }

  // As peft trains the one of two tied tables that it was told (0.21, where ensure_weight_tying is not set).
  [[noreturn]] void refuse_parted(const std::string& name) const {
    refuse(name,
           "was trained apart from the table that the model has tied it to; let peft make a model of its own of them "
           "(merge_and_unload, then save_pretrained), or train them with ensure_weight_tying");
  }

  void require_same_head(const std::string& name, const at::Tensor& embedding,
                         const std::map<std::string, at::Tensor>& all) const {
    const auto head = all.find(kHead);
    if (head == all.end() || !head->second.equal(embedding)) refuse_parted(name);
  }

  checkpoint::WeightAdapter added_to(const std::string& module, const Factors& factors) const {
    const Counterpart* const part = part_named(parts_, module + ".weight");
    if (!part || part->shape.size() != 2)
      refuse(module, fmt::format("is no product of {}'s form, as this program has it", family_.name));
    const auto& [a, b] = factors;
    if (!a.defined() || !b.defined()) refuse(module, fmt::format("has no lora_{}", a.defined() ? "B" : "A"));
    const int64_t inputs = part->shape[part->is_transposed ? 0 : 1], rank = a.size(0);
    if (rank == 0 || a.size(1) != inputs || b.size(0) != part->size || b.size(1) != rank)
      refuse(module, fmt::format("has factors [{}, {}] and [{}, {}], and its weight is [{}, {}]", rank, a.size(1),
                                 b.size(0), b.size(1), part->size, inputs));
    return {part->row, {{part->begin, part->size}, a, b}, scale_of(module, static_cast<double>(rank))};
  }

  double scale_of(const std::string& module, double rank) const {
    const double alpha = value_for(settings_, "alpha_pattern", module, named_.number("lora_alpha", 8), named_);
    return alpha / (named_.flag("use_rslora", false) ? std::sqrt(rank) : rank);
  }

  const std::string path_, file_;
  const json settings_;
  const ConfigSettings named_;
  const Family& family_;
  const bool is_tied_;
  const std::vector<Counterpart> parts_;
};

}  // namespace

bool holds_adapter(const std::string& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder + "/" + kAdapterSettings, ignored);
}

std::string name_of_base(const std::string& folder) {
  const json settings = read_adapter_settings(folder + "/" + kAdapterSettings);
  return settings.value(kBasePath, json()).is_string() ? settings[kBasePath].get<std::string>() : "";
}

std::optional<std::string> find_base_of_adapter(const std::string& folder) {
  const std::string named = name_of_base(folder);
  const fs::path beside = fs::absolute(folder).lexically_normal().parent_path() / fs::path(named).filename();
  std::error_code ignored;
  for (const fs::path& base : {fs::path(named), beside})
    if (!named.empty() && fs::is_regular_file(base / "config.json", ignored)) return base.string();
  return std::nullopt;
}

std::string base_of_adapter(const std::string& folder) {
  if (auto found = find_base_of_adapter(folder)) return std::move(*found);
  const std::string named = name_of_base(folder);
  throw Error(
      ExitCode::checkpoint,
      fmt::format("{}/{}: {} is {}, and the model is needed as a folder with config.json and model.safetensors; "
                  "set the key to its path",
                  folder, kAdapterSettings, kBasePath, named.empty() ? "missing" : printable_line(named)));
}

std::string file_of_adapter(const std::string& folder) { return folder + "/" + kAdapterWeights; }

FolderAdapter adapter_of(const std::string& folder, const std::map<std::string, at::Tensor>& tensors,
                         const ModelConfig& model, const Family& family) {
  const FolderReader reader(folder, model, family);
  const Contents contents = contents_of(file_of_adapter(folder), tensors);
  reader.require_saved(contents.whole);
  return {reader.added(contents.factors), reader.whole(contents.whole)};
}

void apply_adapter(const FolderAdapter& adapter, parameters::NamedTensors& weights) {
  const auto rows_of = [&weights](const std::string& parameter, int64_t begin, int64_t count) {
    const auto own = std::ranges::find(weights, parameter, &std::pair<std::string, at::Tensor>::first);
    return own->second.narrow(0, begin, count);
  };
  for (const WholeRows& whole : adapter.whole)
    rows_of(whole.parameter, whole.begin, whole.values.size(0)).copy_(whole.values);
  for (const auto& [weight, product, scale] : adapter.added)
    rows_of(weight, product.outputs.begin, product.outputs.length).addmm_(product.b, product.a, /*beta=*/1, scale);
}

}  // namespace gpt::exchange
