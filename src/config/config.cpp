#include "gpt/config/config.h"

#include <algorithm>
#include <iterator>

#include "gpt/config/option.h"

namespace gpt {

ModelConfig Config::model_in_stages() const {
  ModelConfig trained = model;
  if (model.attention_window < model.block_size) return trained;
  for (const Stage& stage : data.stages)
    if (stage.attention_window) trained.attention_window = std::min(trained.attention_window, *stage.attention_window);
  return trained;
}

namespace config {

std::vector<Option> options(Config& c) {
  std::vector<Option> rows = {
      {.name = "seed", .target = &c.seed, .help = "seed of every random choice", .min = 0},
      {.name = "threads",
       .target = &c.threads,
       .help = "CPU threads; 0 = all cores, or as many as a control group's quota of processor time",
       .min = 0,
       .max = 1024,
       .safe_on_resume = true},
      {.name = "device",
       .target = &c.device,
       .help = "auto, cpu, cuda or cuda:N",
       .aliases = {{"use_gpu", "auto", "cpu"}},
       .safe_on_resume = true,
       .tried = {"cpu", "cuda"}},
      {.name = "output_dir",
       .target = &c.output_dir,
       .help =
           "folder for checkpoints, metrics and samples; auto = models/NAME, named after the configuration file or the data",
       .aliases = {{"out_dir"}, {"output"}, {"save_dir"}},
       .safe_on_resume = true,
       .is_path = true},
  };
  for (std::vector<Option> section : {options(c.model), options(c.data), options(c.training), options(c.distributed)}) {
    rows.insert(rows.end(), std::make_move_iterator(section.begin()), std::make_move_iterator(section.end()));
  }
  rows.push_back({.section = "report",
                  .name = "tensorboard",
                  .target = &c.report.tensorboard,
                  .help = "write event files for TensorBoard into output_dir/tensorboard; report.html needs no setting",
                  .safe_on_resume = true});
  return rows;
}

}  // namespace config
}  // namespace gpt
