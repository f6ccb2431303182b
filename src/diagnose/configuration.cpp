#include "gpt/diagnose/configuration.h"

#include <fmt/format.h>

#include <cmath>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <system_error>
#include <thread>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/config/load.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/data/corpus.h"
#include "gpt/data/data_loader.h"
#include "gpt/device/host.h"
#include "gpt/device/precision.h"
#include "gpt/diagnose/data_checks.h"
#include "gpt/diagnose/device_checks.h"
#include "gpt/diagnose/disk_checks.h"
#include "gpt/diagnose/model_checks.h"
#include "gpt/model/gpt.h"
#include "gpt/train/announce.h"
#include "gpt/train/metrics.h"
#include "gpt/train/run_state.h"

namespace gpt {
namespace {

namespace fs = std::filesystem;

std::string first_line(const std::exception& e) {
  const std::string what = e.what();
  return what.substr(0, what.find('\n'));
}

// Finds out about the run part by part. A part that needs what another one did not find says that it was not checked.
class Examination {
 public:
  Examination(const Config& config, const std::string& origin) : config_(config), origin_(origin) {}

  Checks run() {
    add(passed("configuration", origin_ + " is valid"));
    attempt("device", "set device: auto", [&] { examine_device(); });
    attempt("dataset", "see data.text, data.dataset and data.bin", [&] { examine_data(); });
    if (!config_.model.vocab_size) {
      add(warned("model", "not checked: the vocabulary comes from the dataset, which could not be read",
                 "repair the dataset"));
    } else {
      attempt("model", "lower the size of the model", [&] { examine_model(); });
      attempt("disk", "choose another output_dir", [&] { examine_disk(); });
    }
    attempt("resume_from", "set training.resume_from: auto, none or the path of a checkpoint",
            [&] { examine_resume(); });
    return std::move(checks_);
  }

 private:
  void add(Check check) { checks_.push_back(std::move(check)); }

  void attempt(const std::string& name, const std::string& fix, const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& e) {
      add(failed(name, e.what(), fix));
    } catch (const std::exception& e) {
      add(failed(name, first_line(e), fix));
    }
  }

  void examine_device() {
    add(check_threads(config_.threads, cores_));
    const DeviceInfo device = describe_device(select_device(config_.device).device);
    const DeviceInfo best = device.device.is_cuda() ? device : describe_device(select_device("auto").device);
    add(check_device(config_.device, device, best, host::has_nvidia_gpu()));
    add(check_precision(config_.training, device));
    if (checks_.back().status == Check::Status::fail) return;
    device_ = device;
    free_bytes_ = static_cast<double>(free_bytes(device.device));
  }

  void examine_data() {
    config::require_data(config_, origin_);
    const Corpus corpus = load_corpus(config_.data, config_.model.block_size, {}, config_.model.vocab_size);
    if (!config_.model.vocab_size) config_.model.vocab_size = corpus.vocab_size;
    if (*config_.model.vocab_size < corpus.vocab_size) {
      add(failed("vocabulary",
                 fmt::format("model.vocab_size {} is less than the {} of the dataset's tokenizer",
                             *config_.model.vocab_size, corpus.vocab_size),
                 "set model.vocab_size: auto"));
    }
    add(check_tokens(corpus));
    if (corpus.validation.size() > 0) add(check_overlap(corpus));
    const DataLoader loader(corpus.sources, config_.data, schedule_options(config_, corpus),
                            device_ ? device_->device : at::Device(at::kCPU));
    std::error_code ignored;
    const auto file_bytes = fs::file_size(corpus.source, ignored);
    const DatasetFacts facts{corpus.source,
                             ignored ? 0 : static_cast<int64_t>(file_bytes),
                             corpus.train.size(),
                             corpus.validation.size(),
                             loader.samples_per_epoch(),
                             loader.resident()};
    plan_ = plan_run(config_.training, loader.batches_per_epoch());
    add(check_dataset(config_.data, config_.model.block_size, facts));
    add(check_batch(config_.training, facts));
    if (config_.data.stages.empty()) {
      add(check_length(config_, facts, *plan_));
    } else {
      for (const std::string& stage : describe_stages(config_, corpus)) add(passed("stage", stage));
    }
    add(check_learning_rate(config_.training, *plan_));
    add(check_validation(config_, facts, *plan_));
    add(check_workers(config_.data, facts.resident, cores_));
    has_validation_ = facts.validation_tokens > 0;
    for (const Tokens& source : corpus.sources) {
      if (facts.resident) free_bytes_ -= static_cast<double>(source.bytes());
    }
  }

  void examine_model() {
    const ModelConfig& model = config_.model;
    add(check_parameters(model));
    if (!device_) {
      add(warned("memory of the run", "not checked: it depends on the device and the precision",
                 "do what the failed checks above say"));
      return;
    }
    const bool cuda = device_->device.is_cuda();
    const Precision precision = resolve_precision(config_.training.use_amp, config_.training.dtype, *device_);
    const std::string path = attention_path(model, device_->device, precision.compute_type(), /*training=*/true);
    add(check_vocabulary(model, cuda));
    add(check_attention(model, cuda, path));
    const ActivationForm form{precision.compute_type(), !path.starts_with("math"), cuda};
    add(check_memory(model, config_.training, form, free_bytes_));
    if (plan_) add(check_compute(model, config_.training, plan_->total_steps, device_->peak_flops(precision.dtype)));
  }

  void examine_disk() {
    const std::string folder = nearest_folder(config_.output_dir);
    const double bytes = checkpoint_bytes(config_.model);
    add(check_disk_speed(folder, measure_write_speed(folder), bytes));
    const int64_t kept = 1 + has_validation_ + config_.training.keep_last;
    add(check_disk_space(folder, static_cast<double>(free_disk_space(folder)), bytes, kept));
  }

  void examine_resume() {
    const std::string& from = config_.training.resume_from;
    if (from != "auto" && from != "none") add(check_checkpoint(from));
  }

  Config config_;
  const std::string origin_;
  const int64_t cores_ = std::thread::hardware_concurrency();
  Checks checks_;
  std::optional<DeviceInfo> device_;  // set when the run could use it
  double free_bytes_ = 0;             // of it, for the model
  std::optional<RunPlan> plan_;
  bool has_validation_ = false;
};

}  // namespace

Checks check_configuration(const Config& config, const std::string& origin) {
  return Examination(config, origin).run();
}

Check check_checkpoint(const std::string& path) {
  std::error_code ignored;
  const std::string file = fs::is_directory(path, ignored) ? path + "/ckpt.pt" : path;
  try {
    const Checkpoint checkpoint = load_checkpoint(file);
    int64_t parameters = 0;
    for (const auto& [name, tensor] : checkpoint.model) parameters += tensor.numel();
    const std::string loss = std::isfinite(checkpoint.best_val_loss)
                                 ? fmt::format("best validation loss {:.4f}", checkpoint.best_val_loss)
                                 : "not yet evaluated";
    return passed("checkpoint", fmt::format("{}: step {}, {} parameters, {}; every hash agrees", file, checkpoint.step,
                                            format_count(static_cast<double>(parameters)), loss));
  } catch (const Error& e) {
    return failed("checkpoint", e.what(), "use ckpt_best.pt or an earlier ckpt_step_*.pt of the same run");
  }
}

}  // namespace gpt
