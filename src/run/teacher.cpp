#include "gpt/run/teacher.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "gpt/checkpoint/file_names.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/hash.h"
#include "gpt/data/document_mask.h"
#include "gpt/exchange/import.h"
#include "gpt/model/compile.h"
#include "gpt/run/initial_weights.h"
#include "gpt/tokenizer/make_tokenizer.h"

namespace gpt::run {
namespace {

constexpr const char* kWithout = "or leave training.distill_from out to learn from the text alone";

ModelOfFile read_teacher(const UpdateConfig& config) {
  const std::string& path = config.training.distillation.from;
  try {
    ModelOfFile teacher = read_model(path);
    if (exchange::is_hugging_face(path)) teacher.model.vocab_multiple = config.model.vocab_multiple;  // padding is ours
    return teacher;
  } catch (const Error& error) {
    throw Error(ExitCode::checkpoint,
                fmt::format("training.distill_from: {}; name a model that is there, {}", error.what(), kWithout));
  }
}

[[noreturn]] void refuse_teacher(const UpdateConfig& config, const std::string& why) {
  throw Error(ExitCode::config, fmt::format("training.distill_from: {} {}", config.training.distillation.from, why));
}

void require_fitting(const ModelOfFile& teacher, const UpdateConfig& config, const DataConfig& data,
                     const data::Corpus& corpus) {
  const int64_t vocabulary = *config.model.vocab_size, of_teacher = teacher.model.vocab_size.value_or(0);
  if (corpus.tokenizer && !teacher.tokenizer.empty() &&
      tokenizer::tokenizer_from_json(teacher.tokenizer, config.training.distillation.from)->to_json() !=
          corpus.tokenizer->to_json()) {
    refuse_teacher(
        config,
        fmt::format("has another tokenizer than the run ({} tokens, and the run has {}), so its predictions are about "
                    "other tokens; name a model with the run's tokenizer, such as the one that init_from was "
                    "pruned from, {}",
                    with_commas(of_teacher), with_commas(vocabulary), kWithout));
  }
  if (of_teacher != vocabulary) {
    refuse_teacher(config,
                   fmt::format("has a vocabulary of {}, and the run has one of {}; name a model with the same, {}",
                               with_commas(of_teacher), with_commas(vocabulary), kWithout));
  }
  if (teacher.model.block_size < config.sequence_length()) {
    refuse_teacher(config, fmt::format("reads sequences of at most {} tokens, and those of the run have {}; set "
                                       "training.sequence_length: {}, {}",
                                       with_commas(teacher.model.block_size), with_commas(config.sequence_length()),
                                       teacher.model.block_size, kWithout));
  }
  if (teacher.model.top_blocks() > 0 && data.packing && std::ranges::any_of(corpus.sources, &data::Tokens::has_marks)) {
    refuse_teacher(config,
                   fmt::format("has attention in chosen blocks, which knows no conversations within a sequence; set "
                               "data.packing: false, name another model, {}",
                               kWithout));
  }
}

std::string hash_of(const parameters::NamedTensors& values) {
  Hash128 hash;
  for (const auto& [name, tensor] : values) {
    const at::Tensor bytes = tensor.contiguous();
    hash.update(name);
    hash.update({static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()});
  }
  return hash.hex();
}

}  // namespace

void take_teacher(UpdateConfig& config, const std::string& output_dir) {
  DistillationConfig& distillation = config.training.distillation;
  std::string& path = distillation.from;
  distillation.teacher.reset();
  if (path == "none") path.clear();
  if (path.empty()) return;
  std::error_code ignored;
  path = exchange::is_hugging_face(path) ? std::filesystem::weakly_canonical(path, ignored).string()
                                         : checkpoint::absolute_checkpoint(path);
  try {
    distillation.teacher = std::make_shared<const ModelConfig>(read_teacher(config).model);
  } catch (const Error&) {
    if (!holds_checkpoint(output_dir)) throw;
  }
}

std::optional<ModelConfig> teacher_in(const ModelConfig& model, const TrainingConfig& training) {
  const std::shared_ptr<const ModelConfig>& teacher = training.distillation.teacher;
  if (!teacher) return std::nullopt;
  ModelConfig reads = *teacher;
  reads.block_size = training.sequence_length_for(model);
  return reads;
}

double teacher_flops_per_token(const ModelConfig& model, const TrainingConfig& training) {
  const std::optional<ModelConfig> teacher = teacher_in(model, training);
  return teacher ? layout::flops_per_token(*teacher) / 3 : 0;  // two thirds are the backward pass
}

void require_fitting_teacher(const UpdateConfig& config, const DataConfig& data, const data::Corpus& corpus) {
  if (!config.training.distillation.from.empty()) require_fitting(read_teacher(config), config, data, corpus);
}

void require_same_teacher(const StartingPoint& start, const Setup& now, const std::string& hash) {
  const std::optional<std::string>& before = start.checkpoint.teacher;
  if (!before || *before == hash) return;
  const std::string &then = start.checkpoint.config.training.distillation.from,
                    &path = now.config.training.distillation.from;
  throw Error(
      ExitCode::checkpoint,
      fmt::format("training.distill_from: {} has other weights than the teacher of this run, {}; name a copy of that "
                  "one, train on without a teacher (--distill_from none), or start another run with --output_dir {}",
                  path, then == path ? "as it was when the run began" : then, next_free_folder(now.config.output_dir)));
}

struct Teacher::Loaded {
  std::string hash;
  model::GPT model;
};

Teacher::Loaded Teacher::load(const Setup& setup) {
  const Config& config = setup.config;
  const at::Device device = setup.device.device;
  const ModelOfFile teacher = read_teacher(config);
  require_fitting(teacher, config, config.data, setup.corpus);
  std::vector<layout::ParameterRow> rows = layout::parameter_table(teacher.model);
  for (layout::ParameterRow& row : rows) row.is_trained = false;
  const parameters::NamedTensors values = read_weights(config.training.distillation.from, teacher.model);
  parameters::Parameters parameters(std::move(rows), device,
                                    {.compute = setup.precision.weight_type(),
                                     .has_master = config.training.precision.master_weights});
  parameters.copy_from(values);
  model::GPT model(teacher.model, std::move(parameters), model::select_operators(config.training.execution, device));
  model.set_document_separator(
      data::document_separator(config.data, setup.corpus));  // it sees what the one that learns sees
  return {hash_of(values), std::move(model)};
}

Teacher::Teacher(const Setup& setup) : Teacher(setup.config.training.distillation, load(setup)) {}

Teacher::Teacher(const DistillationConfig& config, Loaded loaded)
    : weight_(config.weight),
      temperature_(config.temperature),
      hash_(std::move(loaded.hash)),
      model_(std::move(loaded.model)) {}

ops::Distillation Teacher::about(const at::Tensor& ids, const at::Tensor& starts) const {
  const at::NoGradGuard no_gradients;
  const bool is_tied = model_.config().tie_weights;
  const parameters::Parameter head =
      is_tied ? model_.parameters().weight(layout::ParameterRole::token_embedding, -1)
              : model_.parameters().weight(layout::ParameterRole::head, model_.config().n_layer);
  return {.rows = model_.hidden(ids, {.document_starts = starts}),
          .head = head.compute_value(),
          .weight = weight_,
          .temperature = temperature_};
}

double Teacher::bytes() const {
  const parameters::Parameters& parameters = model_.parameters();
  const at::Tensor& copies = parameters.flat_rounded();
  return static_cast<double>(parameters.flat_values().nbytes() + (copies.defined() ? copies.nbytes() : 0));
}

std::string describe_teacher(const Teacher& teacher, const DistillationConfig& config) {
  const std::string temperature =
      config.temperature == 1 ? "" : fmt::format(" at temperature {}", format_number(config.temperature));
  return fmt::format(
      "Teacher: {}, {} parameters; the training loss is {} times the divergence from it{} plus {} times the cross entropy with the text; "
      "the validation loss is the cross entropy alone",
      config.from, format_count(static_cast<double>(teacher.model().parameters().count())), config.weight, temperature,
      1 - config.weight);
}

}  // namespace gpt::run
