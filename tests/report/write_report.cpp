// write_report FOLDER [STEPS]: plays a run through the listeners that write files, for the end-to-end tests. FOLDER then holds
// report.html, metrics.jsonl and tensorboard/ as after STEPS (2,000) updates, some of them lost to a kill and done again, and
// with a sample that is meant to do harm.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gpt/core/file.h"
#include "gpt/report/html_report.h"
#include "gpt/report/tensorboard.h"

namespace {

using Everyone = std::vector<std::unique_ptr<gpt::report::Listener>>;

Everyone listeners(const std::string& folder) {
  Everyone everyone;
  everyone.push_back(std::make_unique<gpt::report::HtmlReport>(folder + "/report.html", folder + "/metrics.jsonl"));
  everyone.push_back(std::make_unique<gpt::report::TensorBoardEvents>(folder + "/tensorboard"));
  return everyone;
}

constexpr char kConfiguration[] =
    "model:\n  n_layer: 6\n  n_head: 6\n  n_embd: 384\n  block_size: 256\ndata:\n  text: \"<b>my & text</b>\"\n";
constexpr char kMachine[] = "NVIDIA H200, 141 GB, CUDA 13.0\ngpt-train 0.1.0 (commit abc1234), LibTorch 2.11.0";
constexpr char kHostile[] =
    "</script><script>document.body.dataset.hacked = 1</script>\n<img src=http://example.invalid/x.png> <!-- <script>\n"
    "\xff\xfe \xe2\x80\xa8 \"quotes\" & \0 zero";

gpt::report::StepRecord step_record(int64_t step, int64_t steps, std::mt19937& random) {
  const double share = static_cast<double>(step) / static_cast<double>(steps);
  std::normal_distribution<double> noise(0, 1);
  gpt::report::StepRecord record;
  record.step = step;
  record.loss = step == steps / 5 ? std::nan("") : 1.4 + 2.8 * std::exp(-9 * share) + 0.04 * noise(random);
  record.learning_rate = 1e-3 * std::min({20 * share, 0.1 + 0.9 * (0.5 + 0.5 * std::cos(3.14159 * share))});
  record.grad_norm = 0.4 + 2 * std::exp(-20 * share) + std::abs(0.1 * noise(random)) + (step % 577 == 0 ? 4 : 0);
  record.step_ms = 21 + noise(random);
  record.tokens_per_second = 16'384 / record.step_ms * 1000;
  record.mfu = 0.43 + 0.01 * noise(random);
  record.peak_memory_mb = step < steps / 2 ? 8'412 : 9'120;
  record.devices = {{.utilization = step % 100 == 0 ? 0.93 : 0.99,
                     .memory_used_mb = step < steps / 2 ? 66'000.0 : 72'000.0,
                     .memory_mb = 80'000}};
  return record;
}

// As the program writes it.
std::string metrics_line(const gpt::report::StepRecord& r) {
  const std::string loss = std::isfinite(r.loss) ? std::to_string(r.loss) : "null";
  return "{\"step\":" + std::to_string(r.step) + ",\"loss\":" + loss + ",\"lr\":" + std::to_string(r.learning_rate) +
         ",\"grad_norm\":" + std::to_string(r.grad_norm) + ",\"step_ms\":" + std::to_string(r.step_ms) +
         ",\"tokens_per_second\":" + std::to_string(r.tokens_per_second) +
         ",\"peak_memory_mb\":" + std::to_string(r.peak_memory_mb) + ",\"mfu\":" + std::to_string(*r.mfu) +
         ",\"device\":{\"utilization\":" + std::to_string(*r.devices[0].utilization) +
         ",\"memory_used_mb\":" + std::to_string(*r.devices[0].memory_used_mb) + ",\"memory_mb\":80000}}";
}

std::string metrics_line(const gpt::report::EvaluationRecord& r) {
  return "{\"step\":" + std::to_string(r.step) + ",\"val_loss\":" + std::to_string(r.loss) +
         ",\"val_perplexity\":1,\"val_bits_per_byte\":" + std::to_string(*r.bits_per_byte) + "}";
}

std::string sample_text(int64_t step, int64_t steps) {
  if (step >= steps) return std::string(kHostile, sizeof kHostile - 1);
  if (step < steps / 4) return "thae wo, sirnd he th; the\n\nCIOROI:\nAnd wes to the me he sord.";
  return "GLOSTER.\nAnd leave you and true the true of them.\n\nDEMETRIUS.\nWhy, is for the loves bears.\n\nKING PRINCE.\nYet the Duke "
         "show fortunes of the secrets — 日本語, עברית.";
}

// One start of the run: the updates after `first`, up to `last`. It ends as by a kill.
void play(const Everyone& everyone, const std::string& folder, int64_t first, int64_t last, int64_t steps,
          std::mt19937& random) {
  const gpt::report::RunRecord run{
      first,          steps,    12, 10'745'088, folder + "/shakespeare <&> char/",
      kConfiguration, kMachine, 12, {},         {{"model.n_layer", "6"}, {"data.text", "my text"}}};
  for (auto& listener : everyone) listener->begin(run);
  gpt::AppendFile metrics(folder + "/metrics.jsonl");
  for (int64_t step = first + 1; step <= last; ++step) {
    const gpt::report::StepRecord record = step_record(step, steps, random);
    for (auto& listener : everyone) listener->step(record);
    metrics.line(metrics_line(record));
    if (step == steps / 5) {
      for (auto& listener : everyone) listener->event({step, "skipped an update: the loss is not finite"});
    }
    if (step % std::max<int64_t>(1, steps / 20) != 0) continue;
    const double loss = 1.48 + 2.7 * std::exp(-9.0 * static_cast<double>(step) / static_cast<double>(steps));
    const gpt::report::EvaluationRecord evaluation{step, loss, loss / 3 / std::log(2), true, 1.5};
    metrics.line(metrics_line(evaluation));
    for (auto& listener : everyone) {
      listener->evaluation(evaluation);
      listener->task({.step = step, .task = "hellaswag", .metrics = {{"acc_norm", 0.4 - 0.05 * loss, 0.01}}});
      listener->sample({step, sample_text(step, steps)});
      listener->event({step, "saved ckpt.pt and ckpt_best.pt"});
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::fputs("usage: write_report FOLDER [STEPS]\n", stderr);
    return 2;
  }
  const std::string folder = argv[1];
  const int64_t steps = argc == 3 ? std::atoll(argv[2]) : 2000;
  std::mt19937 random(1);
  play(listeners(folder), folder, 0, steps * 13 / 20, steps, random);
  const Everyone everyone = listeners(folder);
  play(everyone, folder, steps * 3 / 5, steps, steps, random);
  for (auto& listener : everyone) listener->end();
}
