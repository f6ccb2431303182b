// The model that a run's adapters go with, which its checkpoints name instead of holding its weights: by its path, and by the hash of its
// files, so that it is known again where it was moved, and refused where it has changed.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "gpt/config/model_config.h"
#include "gpt/parameters/frozen_matrix.h"
#include "gpt/parameters/named_tensors.h"

namespace gpt::checkpoint {

struct BaseModel {
  std::string path;   // absolute: of a checkpoint, or of a model of Hugging Face's
  std::string hash;   // XXH3-128 of the bytes of its files
  std::string stamp;  // their sizes and times: as long as these are the same, the files are not read for their hash
};
void to_json(nlohmann::ordered_json& json, const BaseModel& base);
void from_json(const nlohmann::ordered_json& json, BaseModel& base);

// Reads the files at `path`, which is made absolute, for their hash. Throws gpt::Error(checkpoint).
BaseModel describe_base(const std::string& path);

// The base of a checkpoint, where it is now: at its path, or beside the checkpoint, in its folder or the one around that. Throws
// gpt::Error(checkpoint) where none has its hash.
BaseModel find_base(const BaseModel& base, const std::string& checkpoint);

// Models of other programs, about which the folder exchange/ knows, above this one: its base_model.cpp defines these three.
bool is_foreign_base(const std::string& path);
std::vector<std::string> files_of_foreign_base(const std::string& path);
// `padded`: the vocabulary is padded as this model's.
parameters::NamedTensors read_foreign_base(const std::string& path, const ModelConfig& padded,
                                           parameters::RowPacker& packer);

}  // namespace gpt::checkpoint
