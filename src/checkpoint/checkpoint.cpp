#include "gpt/checkpoint/checkpoint.h"

#include <ATen/ops/aminmax.h>
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "consistency.h"
#include "gpt/checkpoint/quantized_file.h"
#include "gpt/config/load.h"
#include "gpt/container/container.h"
#include "gpt/container/pickle.h"
#include "gpt/core/error.h"
#include "gpt/core/hash.h"
#include "gpt/device/precision.h"
#include "gpt/layout/freeze.h"
#include "gpt/optim/optimizer_state.h"
#include "parts.h"
#include "stored_tensors.h"

namespace gpt {
namespace {

using namespace checkpoint;

void require_finite(const std::string& path, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() == 0) continue;
    const auto [low, high] = at::aminmax(tensor.detach());  // both NaN if any value is
    if (std::isfinite(low.item<double>()) && std::isfinite(high.item<double>())) continue;
    throw Error(ExitCode::numerics,
                fmt::format("{} is not written: '{}' holds values that are not finite", path, name));
  }
}

void place_tensors(Checkpoint& checkpoint, const NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (!place_tensor(checkpoint, name, tensor))
      throw Error(ExitCode::checkpoint, fmt::format("unknown tensor '{}'", name));
  }
}

}  // namespace

void save_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  require_finite(path, checkpoint.model);
  for (const auto& [name, tensors] : checkpoint.optimizer.slots) require_finite(path, tensors);

  const NamedTensors tensors = tensors_of(checkpoint);
  const Json description = {{"values", values_of(checkpoint)},
                            {"tensors", descriptions_of(tensors)},
                            {"tokenizer", hash128(checkpoint.tokenizer)}};
  write_records(path,
                {{"data.pkl", python_view(checkpoint)},
                 {"version", "3\n"},       // the version of PyTorch's file format,
                 {"byteorder", "little"},  // and the byte order of the numbers in it: torch.load asks for both
                 {"config.yaml", config::dump(checkpoint.config)},
                 {"tokenizer.json", checkpoint.tokenizer},
                 {"checkpoint.json", description.dump(1, ' ', false, Json::error_handler_t::replace)}},
                tensors);
}

Checkpoint read_checkpoint(const std::string& path, Parts parts) {
  const ContainerReader file(path);
  if (parts == Parts::all) file.verify();
  if (file.has(kQuantizedRecord)) {
    throw Error(ExitCode::checkpoint,
                fmt::format("{} is a quantized model, which can be computed with and not trained or exported; name the "
                            "checkpoint that it was made of",
                            path));
  }
  (void)file.record("data.pkl");  // Python's, for whom it would be no checkpoint without
  Checkpoint checkpoint;
  checkpoint.tokenizer = file.text("tokenizer.json");
  const auto refuse = [&path](std::string_view record, std::string_view why) {
    throw Error(ExitCode::checkpoint, fmt::format("{} cannot be used: {}: {}", path, record, in_one_line(why)));
  };
  try {
    const Json description = read_description(file.text("checkpoint.json"));
    place_values(checkpoint, description.at("values"));
    place_tensors(checkpoint, read_tensors(description.at("tensors"), file, parts == Parts::all ? "" : "model/"));
    const auto hash = description.find("tokenizer");  // programs that wrote none trusted the record
    if (hash != description.end() && *hash != hash128(checkpoint.tokenizer))
      throw Error(ExitCode::checkpoint, "tokenizer.json is not the tokenizer of this run");
  } catch (const Json::exception& fault) { refuse("checkpoint.json", fault.what()); } catch (const Error& fault) {
    refuse("checkpoint.json", fault.what());
  }
  try {
    const config::Origins written = config::read_yaml(file.text("config.yaml"), "config.yaml", checkpoint.config);
    // Programs that did not know the keys had autocast and gradients of float32 only.
    PrecisionConfig& precision = checkpoint.config.training.precision;
    if (!written.count("training.amp_mode")) precision.amp_mode = AmpMode::autocast;
    if (!written.count("training.gradient_dtype")) precision.gradient_dtype = GradientDtype::float32;
  } catch (const Error& fault) { refuse("config.yaml", fault.what()); }
  return checkpoint;
}

Checkpoint load_checkpoint(const std::string& path, Parts parts) {
  Checkpoint checkpoint = read_checkpoint(path, parts);
  try {
    parts == Parts::all ? require_consistent(checkpoint) : require_consistent_model(checkpoint);
  } catch (const Error& fault) {
    throw Error(ExitCode::checkpoint, fmt::format("{} cannot be used: {}", path, in_one_line(fault.what())));
  }
  return checkpoint;
}

uint64_t checkpoint_bytes(const ModelConfig& model, const TrainingConfig& training) {
  const std::vector<ParameterRow> rows = parameter_table(model, training.freeze);
  int64_t bytes = parameter_count(rows) * static_cast<int64_t>(c10::elementSize(kept_weight_type(training.precision)));
  const StateBytes state = state_bytes(rows, flat_layout(rows), training.optimizer);
  bytes += state.device + state.host;
  return static_cast<uint64_t>(bytes);
}

PythonView python_view_of(const std::string& path, const Checkpoint& checkpoint) {
  const ContainerReader file(path);
  const std::string_view pickle = file.text("data.pkl");
  if (pickle == python_view(checkpoint)) return PythonView::ours;
  return is_plain_pickle(pickle) ? PythonView::plain : PythonView::foreign;
}

}  // namespace gpt
