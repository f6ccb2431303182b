// How much of a model goes: what the command line says, and what that is in a model of a given shape.
#pragma once

#include <cstdint>
#include <string>

#include "gpt/config/model_config.h"

namespace gpt::prune {

struct Amount {
  double number = 0;  // of things, or of percent; 0 = none
  bool is_share = false;
};

// "25%" or "512". Throws gpt::Error(config), naming the flag, for anything else and for a share of 100 % or more.
Amount parse_amount(const std::string& flag, const std::string& text);

struct Amounts {
  Amount mlp = {}, heads = {}, layers = {};
};

struct Removal {
  int64_t neurons = 0, heads = 0;  // of each layer; heads are those of queries
  int64_t layers = 0;
};

// A share of neurons is rounded to what leaves a multiple of 32 where the model has one, because fast products and 8-bit formats want
// that; a share of grouped heads to whole groups. A share that is not zero removes something. Throws gpt::Error(config) where nothing
// would be left, or where that many heads cannot be taken from grouped ones: with what would do.
Removal removal_from(const Amounts& amounts, const ModelConfig& model);

}  // namespace gpt::prune
