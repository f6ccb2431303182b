#include "gpt/checkpoint/checkpoint.h"

#include <ATen/ops/aminmax.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "consistency.h"
#include "gpt/checkpoint/adapters.h"
#include "gpt/checkpoint/quantized_file.h"
#include "gpt/config/load.h"
#include "gpt/container/container.h"
#include "gpt/container/pickle.h"
#include "gpt/core/error.h"
#include "gpt/core/hash.h"
#include "gpt/device/precision.h"
#include "gpt/layout/tuning.h"
#include "gpt/optim/optimizer_state.h"
#include "parts.h"
#include "stored_tensors.h"

namespace gpt::checkpoint {
namespace {

using namespace checkpoint;

[[noreturn]] void refuse_record(const std::string& path, std::string_view record, std::string_view why) {
  throw Error(ExitCode::checkpoint, fmt::format("{} cannot be used: {}: {}", path, record, in_one_line(why)));
}

void place_tensors(Checkpoint& checkpoint, const parameters::NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (!place_tensor(checkpoint, name, tensor))
      throw Error(ExitCode::checkpoint, fmt::format("unknown tensor '{}'", name));
  }
}

}  // namespace

void require_finite(const std::string& path, const std::string& name, const at::Tensor& tensor) {
  if (tensor.numel() == 0) return;
  const auto [low, high] = at::aminmax(tensor.detach());  // both NaN if any value is
  if (std::isfinite(low.item<double>()) && std::isfinite(high.item<double>())) return;
  throw Error(ExitCode::numerics, fmt::format("{} is not written: '{}' holds values that are not finite", path, name));
}

std::vector<TextRecord> texts_of(const Checkpoint& checkpoint) {
  const Json description = {{"values", values_of(checkpoint)},
                            {"tensors", descriptions_of(tensors_of(checkpoint))},
                            {"tokenizer", hash128(checkpoint.tokenizer)}};
  std::array<std::string, kTextRecords.size()> texts = {
      python_view(checkpoint),
      "3\n",     // the version of PyTorch's file format,
      "little",  // and the byte order of the numbers in it: torch.load asks for both
      config::dump(checkpoint.config),
      checkpoint.tokenizer,
      description.dump(1, ' ', false, Json::error_handler_t::replace)};
  std::vector<TextRecord> records;
  for (size_t i = 0; i < texts.size(); ++i) records.push_back({kTextRecords[i], std::move(texts[i])});
  return records;
}

void save_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.model) require_finite(path, name, tensor);
  for (const auto& [slot, tensors] : checkpoint.optimizer.slots)
    for (const auto& [name, tensor] : tensors) require_finite(path, name, tensor);
  write_records(path, texts_of(checkpoint), tensors_of(checkpoint));
}

namespace {

// The configuration, before the tensors that it tells of.
void read_config(const std::string& path, const container::ContainerReader& file, Config& into) {
  try {
    const config::Origins written = config::read_yaml(file.text("config.yaml"), "config.yaml", into);
    // Programs that did not know the keys had autocast and gradients of float32 only, and learned lines that separate documents as text.
    PrecisionConfig& precision = into.training.precision;
    if (!written.count("training.amp_mode")) precision.amp_mode = AmpMode::autocast;
    if (!written.count("training.gradient_dtype")) precision.gradient_dtype = GradientDtype::float32;
    if (!written.count("data.document_separator")) into.data.document_separator = "none";
  } catch (const Error& fault) { refuse_record(path, "config.yaml", fault.what()); }
}

// What the weights of a checkpoint are read for.
enum class WeightForm {
  in_full,
  own_alone,  // without the base's
  of_run      // in the bits that its run keeps them in
};

// The weights that the file leaves to the model that it names.
void add_base(const std::string& path, Checkpoint& checkpoint, WeightForm form) {
  require_usable(checkpoint.config, checkpoint.tokenizer, std::nullopt, std::nullopt);
  checkpoint.base = find_base(*checkpoint.base, path);
  std::map<std::string, at::Tensor> own(checkpoint.model.begin(), checkpoint.model.end());
  std::vector<layout::ParameterRow> missing =
      layout::parameter_table(checkpoint.config.model, checkpoint.config.training.tuning);
  const std::vector<layout::ParameterRow> rows = missing;
  std::erase_if(missing, [&own](const layout::ParameterRow& row) { return own.contains(row.name); });
  parameters::RowPacker packer(form == WeightForm::of_run ? missing : std::vector<layout::ParameterRow>());
  const std::string& base_path = checkpoint.base->path;
  const parameters::NamedTensors read = is_foreign_base(base_path)
                                            ? read_foreign_base(base_path, checkpoint.config.model, packer)
                                            : load_checkpoint(base_path, packer).model;
  const std::map<std::string, at::Tensor> of_base(read.begin(), read.end());
  checkpoint.model.clear();
  for (const layout::ParameterRow& row : rows) {
    if (auto found = own.extract(row.name)) {
      checkpoint.model.emplace_back(row.name, found.mapped());
    } else if (const auto base = of_base.find(row.name); base != of_base.end()) {
      checkpoint.model.emplace_back(*base);
      checkpoint.from_base.insert(row.name);
    }
  }
  for (auto& [name, tensor] : own) checkpoint.model.emplace_back(name, tensor);  // which are refused
  checkpoint.frozen = std::move(packer.matrices);
}

Checkpoint read_wanted(const std::string& path, Parts parts, const StateNeeds* needs,
                       WeightForm form = WeightForm::in_full, parameters::RowPacker* packer = nullptr) {
  const container::ContainerReader file(path);
  if (parts == Parts::all && (!needs || needs->verifies_all)) file.verify();
  if (file.has(kQuantizedRecord)) {
    throw Error(ExitCode::checkpoint,
                fmt::format("{} is a quantized model, which can be computed with and not trained or exported; name the "
                            "checkpoint that it was made of",
                            path));
  }
  (void)file.record("data.pkl");  // Python's, for whom it would be no checkpoint without
  Checkpoint checkpoint;
  checkpoint.tokenizer = file.text("tokenizer.json");
  read_config(path, file, checkpoint.config);
  try {
    const Json description = read_description(file.text("checkpoint.json"));
    place_values(checkpoint, description.at("values"));
    if (needs) {
      require_usable(checkpoint.config, checkpoint.tokenizer, std::nullopt, std::nullopt);
      checkpoint.read_state = needs->ranges(checkpoint.config);
      if (needs->weights) checkpoint.read_weights = needs->weights(checkpoint.config);
    }
    const std::string_view prefix = parts == Parts::all ? "" : "model/";
    place_tensors(checkpoint, needs ? read_needed_tensors(description.at("tensors"), file, checkpoint.config.model,
                                                          *checkpoint.read_state,
                                                          checkpoint.read_weights ? &*checkpoint.read_weights : nullptr)
                                    : read_tensors(description.at("tensors"), file, prefix,
                                                   checkpoint.config.training.tuning.lora.is_on() ? nullptr : packer));
    const auto hash = description.find("tokenizer");  // programs that wrote none trusted the record
    if (hash != description.end() && *hash != hash128(checkpoint.tokenizer))
      throw Error(ExitCode::checkpoint, "tokenizer.json is not the tokenizer of this run");
  } catch (const Json::exception& fault) {
    refuse_record(path, "checkpoint.json", fault.what());
  } catch (const Error& fault) { refuse_record(path, "checkpoint.json", fault.what()); }
  if (!checkpoint.base || form == WeightForm::own_alone) return checkpoint;
  try {
    add_base(path, checkpoint, form);
  } catch (const Error& fault) {
    throw Error(ExitCode::checkpoint, fmt::format("{} cannot be used: {}", path, fault.what()));
  }
  return checkpoint;
}

Checkpoint checked(const std::string& path, Parts parts, Checkpoint checkpoint) {
  try {
    parts == Parts::all ? require_consistent(checkpoint) : require_consistent_model(checkpoint);
  } catch (const Error& fault) {
    throw Error(ExitCode::checkpoint, fmt::format("{} cannot be used: {}", path, in_one_line(fault.what())));
  }
  return checkpoint;
}

}  // namespace

Checkpoint read_checkpoint(const std::string& path, Parts parts) { return read_wanted(path, parts, nullptr); }

Checkpoint load_checkpoint(const std::string& path, Parts parts) {
  const WeightForm form = parts == Parts::all ? WeightForm::of_run : WeightForm::in_full;
  Checkpoint checkpoint = checked(path, parts, read_wanted(path, parts, nullptr, form));
  if (parts == Parts::model) merge_adapters(checkpoint);
  return checkpoint;
}

Checkpoint load_adapters_alone(const std::string& path) {
  Checkpoint checkpoint = read_wanted(path, Parts::model, nullptr, WeightForm::own_alone);
  const auto refuse = [&](const std::string& why) {
    throw Error(ExitCode::checkpoint, fmt::format("{} cannot be used as an adapter: {}", path, in_one_line(why)));
  };
  if (!checkpoint.base)
    refuse("it holds a whole model; a run with training.lora_rank that began with init_from has adapters alone");
  try {
    require_usable(checkpoint.config, checkpoint.tokenizer, std::nullopt, checkpoint.text_format);
    const std::vector<layout::ParameterRow> rows =
        layout::adapter_rows(layout::parameter_table(checkpoint.config.model, checkpoint.config.training.tuning));
    for (const auto& [name, tensor] : checkpoint.model)
      if (std::ranges::find(rows, name, &layout::ParameterRow::name) == rows.end())
        throw Error(ExitCode::checkpoint,
                    fmt::format("its run has changed '{}' itself, by training.lora_also_train or another vocabulary; "
                                "gpt-export merges such a run into a model of its own",
                                name));
    (void)parameters::tensors_of_rows(rows, checkpoint.model, "model");
  } catch (const Error& fault) { refuse(fault.what()); }
  return checkpoint;
}

Checkpoint load_checkpoint(const std::string& path, const StateNeeds& needs) {
  return checked(path, Parts::all, read_wanted(path, Parts::all, needs.ranges ? &needs : nullptr, WeightForm::of_run));
}

Checkpoint load_in_full(const std::string& path) {
  return checked(path, Parts::all, read_wanted(path, Parts::all, nullptr));
}

// A base may name one itself, but not without end, as only a forged one could.
Checkpoint load_checkpoint(const std::string& path, parameters::RowPacker& packer) {
  constexpr int kMostInARow = 8;
  thread_local int in_a_row = 0;
  const struct Counted {
    Counted() { ++in_a_row; }
    ~Counted() { --in_a_row; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
  } counted;
  if (in_a_row > kMostInARow)
    throw Error(ExitCode::checkpoint, fmt::format("more than {} models name each other as their base", kMostInARow));
  Checkpoint read = checked(path, Parts::model, read_wanted(path, Parts::model, nullptr, WeightForm::in_full, &packer));
  if (!read.config.training.tuning.lora.is_on()) return read;
  merge_adapters(read);
  for (auto& [name, tensor] : read.model) tensor = packer.take(name, tensor);
  return read;
}

uint64_t checkpoint_bytes(const ModelConfig& model, const TrainingConfig& training) {
  const std::vector<layout::ParameterRow> rows = layout::parameter_table(model, training.tuning);
  // Adapters name the weights that they go with, and the others are as good as all that there is.
  const bool names_base = training.tuning.lora.is_on() && !training.init_from.empty();
  int64_t bytes = (names_base ? layout::trained_count(rows) : layout::parameter_count(rows)) *
                  static_cast<int64_t>(c10::elementSize(device::kept_weight_type(training.precision)));
  const optim::StateBytes state = optim::state_bytes(rows, layout::flat_layout(rows), training.optimizer);
  bytes += state.device + state.host;
  return static_cast<uint64_t>(bytes);
}

PythonView python_view_of(const std::string& path, const Checkpoint& checkpoint) {
  const container::ContainerReader file(path);
  const std::string_view pickle = file.text("data.pkl");
  if (pickle == python_view(checkpoint)) return PythonView::ours;
  return container::is_plain_pickle(pickle) ? PythonView::plain : PythonView::foreign;
}

}  // namespace gpt::checkpoint
