// The whole configuration of a run: one plain struct per owner. An owner takes its own struct, never the whole Config.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpt/config/data_config.h"
#include "gpt/config/distributed_config.h"
#include "gpt/config/model_config.h"
#include "gpt/config/training_config.h"

namespace gpt {

constexpr const char* kAutomaticFolder = "auto";  // models/NAME, of the configuration or the data: see output_folder()

// What a run writes about itself beyond what it always writes.
struct ReportConfig {
  bool tensorboard = false;  // event files, in output_dir/tensorboard
};

// What an update computes, and the processes that divide it among them: its time, its memory and what it sends follow from this.
struct UpdateConfig {
  ModelConfig model;
  TrainingConfig training;
  DistributedConfig distributed;

  int64_t sequence_length() const { return training.sequence_length_for(model); }
};

struct Config : UpdateConfig {
  int64_t seed = 1337;
  int64_t threads = 0;          // 0 = all cores
  std::string device = "auto";  // auto | cpu | cuda | cuda:N
  std::string output_dir = kAutomaticFolder;
  DataConfig data;
  ReportConfig report;

  // The model as its stages train it: windows that are no shorter than sequences are as narrow as in any stage.
  ModelConfig model_in_stages() const;
};

namespace config {
std::vector<Option> options(Config& config);  // its own rows, then those of its sections
}  // namespace config

}  // namespace gpt
