// Where a run lives unless output_dir names another place: models/NAME. Two configurations, two folders.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpt/config/load.h"
#include "gpt/config/run_files.h"

namespace gpt::config {

constexpr const char* kRunsFolder = "models";

// models/NAME, NAME being that of the configuration's file, else of the text, bin or dataset, without the endings that say what kind of
// file it is. Where the file is called as many others are (config.yaml, train.bin, tokens_bpe.bin), or by a pattern, its folder's name.
std::string output_folder(const DataConfig& data, const std::string& config_path);

// What earlier versions called it: up to the first point of the name, or "run".
std::vector<std::string> former_output_folders(const DataConfig& data, const std::string& config_path);

// The configuration that a run left in its folder; nothing where there is none that can be read.
std::optional<Config> left_configuration(const std::string& folder);

// What this configuration changes of the run that left `saved`, whatever that chose for itself and wherever it lies.
std::vector<Change> changes_of_run(const Config& saved, Config now, const Origins& origins);

// output_folder(), unless that is not there yet and a former one holds the run that exactly this configuration made.
std::string folder_of_run(const Config& config, const Origins& origins, const std::string& config_path);

}  // namespace gpt::config
