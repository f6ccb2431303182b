// The adapters of a run alone: a folder as Hugging Face's peft reads it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "foreign_adapters.h"
#include "gpt/checkpoint/checkpoint.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/exchange/export.h"
#include "gpt/exchange/hugging_face.h"
#include "gpt/exchange/import.h"
#include "gpt/exchange/model_card.h"
#include "gpt/exchange/weights.h"
#include "moved_scales.h"

namespace gpt::exchange {
namespace {

using nlohmann::ordered_json;

constexpr const char *kWeights = "adapter_model.safetensors", *kSettings = "adapter_config.json";

std::string base_of(const checkpoint::Checkpoint& checkpoint) {
  const std::string& path = checkpoint.config.training.init_from;
  return is_hugging_face(path) ? path : "";
}

// The fields of peft 0.21 that a reader needs, and those that say that all else is off. What a module has that others have not stands under
// its own name.
ordered_json adapter_json(const checkpoint::Checkpoint& checkpoint, const std::vector<ForeignAdapter>& adapters,
                          const std::map<std::string, at::Tensor>& whole) {
  const LoraConfig& lora = checkpoint.config.training.tuning.lora;
  const double alpha = lora.scale() * static_cast<double>(lora.rank);
  ordered_json modules = ordered_json::array(), ranks = ordered_json::object(), alphas = ordered_json::object();
  bool is_transposed = false;
  for (const ForeignAdapter& adapter : adapters) {
    const std::string module = module_of(adapter.part.name);
    modules.push_back(module);
    if (adapter.a.size(0) != lora.rank) ranks[module] = adapter.a.size(0), alphas[module] = adapter.alpha;
    is_transposed = is_transposed || adapter.part.is_transposed;
  }
  std::set<std::string> saved;
  for (const auto& [name, tensor] : whole) saved.insert(module_of(name));
  const std::string base = base_of(checkpoint);
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", base.empty() ? ordered_json() : ordered_json(base)},
          {"inference_mode", true},
          {"r", lora.rank},
          {"lora_alpha", alpha},
          {"lora_dropout", lora.dropout},
          {"bias", "none"},
          {"fan_in_fan_out", is_transposed},
          {"target_modules", std::move(modules)},
          {"modules_to_save", saved.empty() ? ordered_json() : ordered_json(saved)},
          {"ensure_weight_tying", checkpoint.config.model.tie_weights && whole.contains(kHead)},
          {"rank_pattern", std::move(ranks)},
          {"alpha_pattern", std::move(alphas)},
          {"use_rslora", false},
          {"use_dora", false}};
}

std::map<std::string, at::Tensor> adapter_tensors(const std::vector<ForeignAdapter>& adapters,
                                                  const std::map<std::string, at::Tensor>& whole) {
  const std::string beginning = "base_model.model.";
  std::map<std::string, at::Tensor> tensors;
  for (const ForeignAdapter& adapter : adapters) {
    const std::string module = beginning + module_of(adapter.part.name);
    tensors[module + ".lora_A.weight"] = adapter.a;
    tensors[module + ".lora_B.weight"] = adapter.b;
  }
  for (const auto& [name, values] : whole) tensors[beginning + name] = values;
  return tensors;
}

// The tokens of a model whose rows the run has added are in no adapter.
void require_vocabulary_of_base(const checkpoint::Checkpoint& checkpoint, const std::string& path) {
  const std::string base = base_of(checkpoint);
  if (base.empty() || !exists(base)) return;
  const int64_t tokens = *checkpoint.config.model.vocab_size, of_base = *read_foreign_model(base).model.vocab_size;
  if (tokens == of_base) return;
  throw Error(
      ExitCode::checkpoint,
      fmt::format("{}: the run has a vocabulary of {} and {} one of {}, and adapters have no rows for the others; "
                  "leave --adapter out to export the whole model",
                  path, with_commas(tokens), base, with_commas(of_base)));
}

}  // namespace

checkpoint::Checkpoint load_adapters(const ExportOptions& options) {
  const std::string& path = options.checkpoint;
  checkpoint::Checkpoint checkpoint = load_weights(options, checkpoint::Parts::model_and_adapters);
  if (!checkpoint.config.training.tuning.lora.is_on())
    throw Error(ExitCode::checkpoint,
                fmt::format("{} has no adapters, because its run trained the weights themselves (training.lora_rank is "
                            "0): leave --adapter out",
                            path));
  require_vocabulary_of_base(checkpoint, path);
  return with_scales_moved(std::move(checkpoint));  // as its base is, where that leaves
}

void export_peft(const ExportOptions& options) {
  require_free_folder(options.output, /*is_for_adapter=*/true);
  const checkpoint::Checkpoint checkpoint = load_adapters(options);
  const Family& family = family_of(checkpoint.config.model, options.checkpoint, "peft");
  const std::vector<ForeignAdapter> adapters = foreign_adapters(checkpoint, family);
  const auto whole = modules_trained_whole(checkpoint, family);
  const std::string& folder = options.output;
  create_folders(folder);
  AtomicFile card(folder + "/" + kModelCard), settings(folder + "/" + kSettings);
  card.write(adapter_card(checkpoint, options.checkpoint, family));
  settings.write(adapter_json(checkpoint, adapters, whole).dump(2) + "\n");
  const auto weights =
      written_weights(folder + "/" + kWeights, adapter_tensors(adapters, whole), weight_type(options.dtype));
  card.commit();
  weights->commit();
  settings.commit();
  const LoraConfig& lora = checkpoint.config.training.tuning.lora;
  const std::string beside =
      whole.empty() ? "" : fmt::format(" and what was trained whole ({})", fmt::join(lora.also_train, ", "));
  log::success(fmt::format("{}: {} of rank {}{}, for peft, which adds them to {}", folder,
                           plural(std::ssize(adapters), "adapter"), lora.rank, beside,
                           base_of(checkpoint).empty() ? "the model that the run began with" : base_of(checkpoint)));
}

}  // namespace gpt::exchange
