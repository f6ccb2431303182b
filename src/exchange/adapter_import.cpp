#include "gpt/exchange/adapter_import.h"

#include <ATen/ops/mm.h>
#include <fmt/format.h>

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
  for (const char* key : {"layer_replication", "trainable_token_indices", "target_parameters"})
    settings.must_be_absent(key);
  if (settings.has("modules_to_save") && !settings.is("modules_to_save", json::array()))
    settings.refuse("modules_to_save", "this program reads adapters of products alone");
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

std::map<std::string, Factors> factors_of(const std::string& path, const std::map<std::string, at::Tensor>& tensors) {
  constexpr std::string_view kBeginning = "base_model.model.", kA = ".lora_A.weight", kB = ".lora_B.weight";
  std::map<std::string, Factors> found;
  for (const auto& [name, values] : tensors) {
    const bool is_a = name.ends_with(kA);
    if (!name.starts_with(kBeginning) || (!is_a && !name.ends_with(kB)) || values.dim() != 2)
      throw Error(ExitCode::checkpoint, fmt::format("{}: tensor '{}' is no factor of an adapter of a product", path,
                                                    shortened(printable_line(name), 100)));
    const std::string module = name.substr(kBeginning.size(), name.size() - kBeginning.size() - kA.size());
    (is_a ? found[module].a : found[module].b) = values;
  }
  return found;
}

const Counterpart* part_of(const std::vector<Counterpart>& parts, const std::string& module) {
  for (const char* prefix : {"", "model.", "transformer."}) {  // of a base model without its head
    const auto part = std::ranges::find(parts, prefix + module + ".weight", &Counterpart::name);
    if (part != parts.end() && part->shape.size() == 2) return &*part;
  }
  return nullptr;
}

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

std::vector<WeightAdapter> adapters_of(const std::string& folder, const std::map<std::string, at::Tensor>& tensors,
                                       const ModelConfig& model, const Family& family) {
  const std::string path = folder + "/" + kAdapterSettings, file = file_of_adapter(folder);
  const json settings = read_adapter_settings(path);
  const ConfigSettings named(settings, "", path);
  require_plain_lora(named);
  const std::vector<Counterpart> parts = counterparts(model, family);
  const bool is_stabilized = named.flag("use_rslora", false);
  std::vector<WeightAdapter> adapters;
  for (const auto& [module, factors] : factors_of(file, tensors)) {
    const auto refuse = [&, &name = module](const std::string& why) {
      throw Error(ExitCode::checkpoint,
                  fmt::format("{}: module '{}' {}", file, shortened(printable_line(name), 100), why));
    };
    const Counterpart* const part = part_of(parts, module);
    if (!part) refuse(fmt::format("is no product of {}'s form, as this program has it", family.name));
    const auto& [a, b] = factors;
    if (!a.defined() || !b.defined()) refuse(fmt::format("has no lora_{}", a.defined() ? "B" : "A"));
    const int64_t inputs = part->shape[part->is_transposed ? 0 : 1], rank = a.size(0);
    if (rank == 0 || a.size(1) != inputs || b.size(0) != part->size || b.size(1) != rank)
      refuse(fmt::format("has factors [{}, {}] and [{}, {}], and its weight is [{}, {}]", rank, a.size(1), b.size(0),
                         b.size(1), part->size, inputs));
    const double alpha = value_for(settings, "alpha_pattern", module, named.number("lora_alpha", 8), named),
                 scale = alpha / (is_stabilized ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
    adapters.push_back({part->row, {{part->begin, part->size}, a, b}, scale});
  }
  return adapters;
}

void add_adapters(const std::vector<WeightAdapter>& adapters, NamedTensors& weights) {
  for (const auto& [weight, product, scale] : adapters) {
    const auto own = std::ranges::find(weights, weight, &std::pair<std::string, at::Tensor>::first);
    const auto& [outputs, a, b] = product;
    own->second.narrow(0, outputs.begin, outputs.length).addmm_(b, a, /*beta=*/1, scale);
  }
}

}  // namespace gpt::exchange
