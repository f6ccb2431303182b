#include "gpt/generate/loaded_model.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "gpt/checkpoint/averages.h"
#include "gpt/checkpoint/checkpoint.h"
#include "gpt/checkpoint/file_names.h"
#include "gpt/checkpoint/history.h"
#include "gpt/checkpoint/quantized_file.h"
#include "gpt/config/output_folder.h"
#include "gpt/config/suggest.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/device/cpu_allocator.h"
#include "gpt/device/device.h"
#include "gpt/device/precision.h"
#include "gpt/exchange/adapter_import.h"
#include "gpt/exchange/import.h"
#include "gpt/exchange/missing_model.h"
#include "gpt/exchange/weights.h"
#include "gpt/generate/adapter_reader.h"
#include "gpt/generate/type_choice.h"
#include "gpt/model/quantized_model.h"
#include "gpt/ops/narrow_weights.h"
#include "gpt/tokenizer/make_tokenizer.h"

namespace gpt::generate {
namespace {

// What a file or folder holds, whoever wrote it.
struct StoredModel {
  ModelConfig config;
  parameters::NamedTensors weights;
  std::optional<model::QuantizedTensors> quantized = {};  // instead of those
  std::string tokenizer;                                  // JSON; empty where it has none
  std::string_view why_no_tokenizer;                      // that it has none
  PrecisionConfig precision = {};                         // of its run
  std::optional<int32_t> start = {};
  std::optional<tokenizer::TextFormat> text_format = {};
  std::string origin;  // "after 24 training steps, validation loss 2.1234"
};

// The last validation loss of these weights, which the metrics beside them have, and where the run had a better one.
std::string describe_loss(const std::string& path, const checkpoint::Checkpoint& checkpoint) {
  const double best = checkpoint.best_val_loss;
  const report::RunHistory history = checkpoint::history_beside(path, checkpoint.step);
  const auto& last = history.last_evaluation;
  if (!last || last->step != checkpoint.evaluated_step)
    return std::isfinite(best) ? fmt::format(", best validation loss of its run {:.4f}", best) : "";
  std::string text = fmt::format(", validation loss {:.4f}", last->loss);
  if (last->step < checkpoint.step) text += fmt::format(" at step {}", with_commas(last->step));
  if (best < last->loss) text += fmt::format(" (best of its run {:.4f}: {})", best, checkpoint::kBestCheckpoint);
  return text;
}

StoredModel read_checkpoint_model(const std::string& path, bool averages) {
  checkpoint::Checkpoint checkpoint =
      averages ? checkpoint::load_averages(path) : checkpoint::load_checkpoint(path, checkpoint::Parts::model);
  StoredModel stored{.config = checkpoint.config.model,
                     .weights = std::move(checkpoint.model),
                     .tokenizer = std::move(checkpoint.tokenizer),
                     .why_no_tokenizer = "because its run read token ids",
                     .precision = checkpoint.config.training.precision,
                     .origin = fmt::format("after {}{}", plural(checkpoint.step, "training step"),
                                           averages ? ", averages of its weights" : describe_loss(path, checkpoint))};
  stored.text_format = std::move(checkpoint.text_format);
  if (checkpoint.sample_start) stored.start = static_cast<int32_t>(*checkpoint.sample_start);
  return stored;
}

StoredModel read_quantized_model(const std::string& path) {
  checkpoint::QuantizedFile file = checkpoint::read_quantized(path);
  StoredModel stored{.config = file.config.model,
                     .weights = {},
                     .quantized = std::move(file.tensors),
                     .tokenizer = std::move(file.tokenizer),
                     .why_no_tokenizer = "because its run read token ids",
                     .origin = fmt::format("after {}", plural(file.step, "training step"))};
  stored.text_format = std::move(file.text_format);
  if (file.sample_start) stored.start = static_cast<int32_t>(*file.sample_start);
  return stored;
}

StoredModel read_hugging_face_model(const std::string& path) {
  exchange::ForeignModel foreign = exchange::read_foreign_model(path);
  for (const std::string& note : foreign.notes) log::warn(note);
  return {.config = foreign.model,
          .weights = exchange::read_weights(path, foreign.model, *foreign.family),
          .tokenizer = std::move(foreign.tokenizer),
          .why_no_tokenizer =
              "because there is no tokenizer.json (transformers' AutoTokenizer writes one with save_pretrained)",
          .text_format = std::move(foreign.text_format),
          .origin = fmt::format("in the form of {}", foreign.family->name)};
}

StoredModel read_model(const ModelOptions& options) {
  const std::string& path = options.checkpoint;
  if (!options.adapter.empty()) require_no_averages(options.averages);
  const bool is_foreign = exchange::is_hugging_face(path);
  if (!is_foreign && !checkpoint::is_quantized(path)) return read_checkpoint_model(path, options.averages);
  if (options.averages)
    throw Error(ExitCode::config,
                fmt::format("--averages: {} has one set of weights, and a checkpoint of gpt-train's may "
                            "have averages too; name one, or leave --averages out",
                            path));
  return is_foreign ? read_hugging_face_model(path) : read_quantized_model(path);
}

// The bits of the weights, where they are to be quantized or already are.
std::optional<parameters::QuantizedType> choose_quantized(const ModelOptions& options, const StoredModel& stored,
                                                          const device::DeviceInfo& device) {
  const WeightType& asked = options.dtype;
  const auto type = stored.quantized ? std::optional(stored.quantized->type) : asked.quantized;
  if (stored.quantized && asked != WeightType() && asked.quantized != type) {
    throw Error(ExitCode::config,
                fmt::format("{} has {} weights: leave out --dtype, or name the checkpoint that it was made of",
                            options.checkpoint, name_of(*type)));
  }
  if (type && !device.device.is_cpu()) {
    throw Error(ExitCode::config, fmt::format("{} weights are computed with on a CPU only, not on {}: add --device cpu",
                                              name_of(*type), device.name));
  }
  return type;
}

// A GPU computes in the type. A CPU reads weights in it, and computes in float32: a token takes as long as reading them. Where the run
// computed end to end in bfloat16, its weights of 16 bits are the model.
at::ScalarType choose_type(const ModelOptions& options, const StoredModel& stored, const device::DeviceInfo& device) {
  Dtype dtype = options.dtype.dtype;
  const PrecisionConfig& of_run = stored.precision;
  if (device.device.is_cuda()) {
    const device::Precision precision =
        device::resolve_precision({.use_amp = dtype != Dtype::float32, .dtype = dtype, .amp_mode = AmpMode::autocast},
                                  device);
    device::apply_precision(precision, /*deterministic=*/false);
    return precision.compute_type();
  }
  const bool is_end_to_end =
      of_run.use_amp && of_run.dtype == Dtype::bfloat16 && of_run.amp_mode == AmpMode::end_to_end;
  if (dtype == Dtype::automatic) dtype = is_end_to_end ? Dtype::bfloat16 : Dtype::float32;
  // Where float32 would leave little memory there is nothing to choose.
  const bool has_room = 8.0 * static_cast<double>(layout::parameter_count(stored.config)) <
                        static_cast<double>(device::free_bytes(at::kCPU));
  if (options.dtype.dtype == Dtype::automatic && is_end_to_end && options.prefers_speed && has_room) {
    const TypeTimes times = known_types(layout::parameter_count(stored.config), type_times_file());
    if (times.at(at::kFloat) < times.at(at::kBFloat16)) dtype = Dtype::float32;
  }
  return dtype == Dtype::bfloat16 ? at::kBFloat16 : dtype == Dtype::float16 ? at::kHalf : at::kFloat;
}

// The sums are computed in float32.
void add_adapter(StoredModel& stored, const ModelOptions& options) {
  const std::string path = find_model(options.adapter);
  const auto tokenizer =
      stored.tokenizer.empty() ? nullptr : tokenizer::tokenizer_from_json(stored.tokenizer, options.checkpoint);
  const ReadAdapter adapter = AdapterReader(options.checkpoint, stored.config, tokenizer.get()).read(path);
  std::set<std::string> changed;
  for (const checkpoint::WeightAdapter& one : adapter.changes.added) changed.insert(one.weight);
  for (const exchange::WholeRows& one : adapter.changes.whole) changed.insert(one.parameter);
  for (auto& [name, values] : stored.weights)  // which may lie in the file
    if (changed.contains(name)) values = values.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  exchange::apply_adapter(adapter.changes, stored.weights);
  if (adapter.text_format) adapter.change(stored.text_format ? *stored.text_format : stored.text_format.emplace());
  stored.origin += fmt::format(", with the adapter {}", path);
}

std::unique_ptr<model::GPT> make_model(StoredModel& stored, at::Device device, at::ScalarType type) {
  if (stored.quantized) return model::quantized_gpt(stored.config, std::move(*stored.quantized));
  if (device.is_cuda() || type == at::kFloat)
    return std::make_unique<model::GPT>(stored.config, device, std::move(stored.weights));
  auto model = std::make_unique<model::GPT>(stored.config, device, std::move(stored.weights),
                                            parameters::ParameterTypes{.compute = type, .has_master = false});
  model->set_operators(ops::narrow_weight_operators(model->parameters()));
  return model;
}

// The model's own, or the one that was named for a model that has none.
std::unique_ptr<tokenizer::Tokenizer> tokenizer_for(const StoredModel& stored, const ModelOptions& options) {
  const std::string &path = options.checkpoint, &spec = options.tokenizer;
  if (!stored.tokenizer.empty()) {
    if (spec.empty()) return tokenizer::tokenizer_from_json(stored.tokenizer, path);
    throw Error(ExitCode::config, fmt::format("{} has its own tokenizer: leave out --tokenizer {}", path, spec));
  }
  if (spec.empty()) {
    throw Error(
        ExitCode::checkpoint,
        fmt::format("{} has no tokenizer, {}: name the one that made its token ids with --tokenizer (byte, gpt2 "
                    "or a tokenizer file)",
                    path, stored.why_no_tokenizer));
  }
  if (spec == "char" || tokenizer::trained_vocabulary(spec)) {
    throw Error(ExitCode::config,
                fmt::format("--tokenizer {}: it is learned from a text: name byte, gpt2 or a tokenizer file", spec));
  }
  auto tokenizer = tokenizer::make_tokenizer(spec, {});
  const int64_t most = *stored.config.vocab_size;
  if (tokenizer->vocab_size() <= most) return tokenizer;
  throw Error(ExitCode::config, fmt::format("--tokenizer {} has {}, and the model of {} only {}: name another one",
                                            spec, plural(tokenizer->vocab_size(), "token"), path, with_commas(most)));
}

// The run in a folder of runs whose last checkpoint is the newest; empty where there is none.
std::string newest_run(const std::string& folder) {
  namespace fs = std::filesystem;
  std::string newest;
  fs::file_time_type newest_time = fs::file_time_type::min();
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code missing;
    if (!entry->is_directory(missing)) continue;
    const fs::file_time_type time = fs::last_write_time(checkpoint::checkpoint_file(entry->path().string()), missing);
    if (!missing && time > newest_time) newest = entry->path().string(), newest_time = time;
  }
  return newest;
}

void require_model(const std::string& path) {
  if (path.empty()) {
    throw Error(ExitCode::checkpoint,
                fmt::format("there is no run in {}/; train one with gpt-train, or name a checkpoint with --checkpoint",
                            config::kRunsFolder));
  }
  std::error_code error;
  if (std::filesystem::exists(path, error) || error) return;
  const bool in_folder = std::filesystem::path(path).filename() == checkpoint::kLastCheckpoint;
  const std::string folder = in_folder ? std::filesystem::path(path).parent_path().string() : "";
  const bool is_there = in_folder && std::filesystem::is_directory(folder, error);
  const std::string run = is_there ? newest_run(folder) : "";
  const std::string near = !run.empty() ? fmt::format("; {} holds runs, such as {}", folder, run)
                           : is_there   ? ""
                                        : config::did_you_mean_path(in_folder ? folder : path);
  const std::string beside = std::filesystem::path(path).parent_path().string();
  const bool is_unfinished = exchange::is_unfinished_export(beside);
  const std::string why = near.empty() || is_unfinished ? exchange::why_missing(is_unfinished ? beside : path) : "";
  if (!why.empty()) throw Error(ExitCode::checkpoint, why);
  throw Error(ExitCode::checkpoint,
              fmt::format("{}: no such checkpoint; {}", path,
                          near.empty() ? "train one with gpt-train, or name one with --checkpoint" : near.substr(2)));
}

}  // namespace

std::vector<config::Option> options(ModelOptions& o, const std::string& threads) {
  return {
      {.name = "checkpoint",
       .target = &o.checkpoint,
       .help =
           "a checkpoint file, the folder of a run (its last one), a quantized model of gpt-export's or a model of Hugging "
           "Face's; by default the "
           "newest run in models/",
       .is_path = true},
      {.name = "tokenizer",
       .target = &o.tokenizer,
       .help = "for a model that comes without one, as after a run on token ids: byte, gpt2 or a tokenizer file",
       .is_path = true},
      config::switch_row("averages", o.averages,
                         "compute with the averages of the weights, of a run with training.ema_decay"),
      {.name = "device", .target = &o.device, .help = "auto, cpu, cuda or cuda:N"},
      {.name = "dtype",
       .target = config::choice(o.dtype, {{"auto", {Dtype::automatic}},
                                          {"float32", {Dtype::float32}},
                                          {"bfloat16", {Dtype::bfloat16}},
                                          {"float16", {Dtype::float16}},
                                          {"int8", {Dtype::float32, parameters::QuantizedType::int8}},
                                          {"int4", {Dtype::float32, parameters::QuantizedType::int4}}}),
       .help =
           "the type of the weights on a CPU (auto = bfloat16 where the run computed end to end in it and, but for "
           "gpt-eval, it is no slower; otherwise float32), or what a GPU computes in (auto = bfloat16 or float16); int8 and int4, on a CPU, take 8.5 "
           "or 4.5 bits a weight, and gpt-export --format quantized makes a file of them once"},
      {.name = "threads", .target = &o.threads, .help = threads, .min = 0, .max = 1024}};
}

std::vector<config::Option> rows_with_adapter(ModelOptions& o, const std::string& threads) {
  std::vector<config::Option> rows = options(o, threads);
  rows.insert(rows.begin() + 1,
              {.name = "adapter",
               .target = &o.adapter,
               .help =
                   "adapters (LoRA) of that model, which is computed with as they change it: a folder of peft, or a "
                   "run with training.lora_rank",
               .aliases = {{"lora"}},
               .is_path = true});
  return rows;
}

std::string find_model(const std::string& named) {
  if (named.empty()) return checkpoint::checkpoint_file(newest_run(config::kRunsFolder));
  return exchange::is_hugging_face(named) ? named : checkpoint::checkpoint_file(named);
}

LoadedModel load_model(const ModelOptions& options) {
  const process::LeaveAtFirstSignal loading;
  const std::string& path = options.checkpoint;
  require_model(path);
  const device::DeviceChoice choice = device::select_device(options.device);
  const device::DeviceInfo device = device::describe_device(choice.device);

  StoredModel stored = read_model(options);
  if (!options.adapter.empty()) add_adapter(stored, options);
  // Before the weights, which then lie in large pages: the processor finds their addresses sooner. perf: OPT-31.
  device::use_cpu_allocator();
  LoadedModel loaded;
  loaded.device_name = device.name;
  loaded.quantized = choose_quantized(options, stored, device);
  loaded.weight_type = loaded.quantized ? at::kFloat : choose_type(options, stored, device);
  loaded.compute_type = choice.device.is_cuda() ? loaded.weight_type : at::kFloat;
  loaded.tokenizer = tokenizer_for(stored, options);
  loaded.start = stored.start;
  loaded.text_format = tokenizer::text_format_of(stored.text_format, *loaded.tokenizer);
  if (loaded.quantized && !stored.quantized)
    stored.quantized = model::quantize(stored.config, std::move(stored.weights), *loaded.quantized);
  loaded.model = make_model(stored, choice.device, loaded.weight_type);
  log::info(fmt::format("Loaded {}: {} parameters {}, {} tokenizer with {}", path,
                        format_count(static_cast<double>(loaded.model->parameters().count())), stored.origin,
                        loaded.tokenizer->name(), plural(loaded.tokenizer->vocab_size(), "token")));
  return loaded;
}

PromptStart prompt_start(const LoadedModel& loaded) { return {loaded.start, loaded.text_format.prefix}; }

std::string_view weight_name(const LoadedModel& loaded) {
  return loaded.quantized ? parameters::name_of(*loaded.quantized) : device::name_of(loaded.weight_type);
}

void announce_device(const LoadedModel& loaded, const std::string& threads) {
  const std::string_view type = weight_name(loaded);
  const std::string size =
      loaded.quantized ? fmt::format(" ({})", format_bytes(static_cast<double>(model::weight_bytes(*loaded.model))))
                       : "";
  log::info(loaded.model->device().is_cuda()
                ? fmt::format("Using GPU: {}, {}", loaded.device_name, type)
                : fmt::format("Using CPU: {}, {} weights{}, {}", loaded.device_name, type, size, threads));
}

}  // namespace gpt::generate
