// What a run leaves in its folder, by name: for those who go on with it, and for those who must not take it for text.
#pragma once

#include <string>
#include <vector>

namespace gpt {

constexpr const char *kMetricsFile = "metrics.jsonl", *kDecisionsFile = "decisions.jsonl",
                     *kEffectiveConfig = "effective_config.yaml", *kReportFile = "report.html", *kRunLog = "train.log",
                     *kRateChart = "learning_rate.svg", *kStatusFile = "status.json",
                     *kBaseFile = "base.pt",        // a second name of the checkpoint that the run's adapters go with
                         *kSetAside = "set_aside";  // a folder, of older runs

bool is_checkpoint_name(
    const std::string& name);  // ckpt.pt, ckpt_best.pt, a numbered one, or a copy such as ckpt_mine.pt

// What goes with the run when it is set aside: everything but the log.
bool belongs_to_run(const std::string& name);

// Whether the names in a folder are those of a run that has begun.
bool holds_run(const std::vector<std::string>& names);

}  // namespace gpt
