// Which parameters of a model a run trains, and what it trains beside those that it does not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpt {

// What the matrices that adapters go with are kept in while these are trained. automatic: in the type that the run computes with.
enum class BaseType { automatic, bfloat16, int8, int4 };

// LoRA (Hu et al., 2021): to the result of each product that is named a second one is added, through `rank` values, which alone is trained.
struct LoraConfig {
  int64_t rank = 0;  // 0: there is none
  double alpha = 32;
  bool is_alpha_automatic = true;  // twice the rank then
  bool is_rank_stabilized = false;
  std::vector<std::string> targets{"all-linear"};  // as layout/tuning.h has them
  BaseType base = BaseType::automatic;
  double dropout = 0;  // of what A is multiplied with, in [0, 1)
  std::vector<std::string> also_train =
      {};  // parameters without adapters that are trained themselves, as layout/tuning.h has it

  bool is_on() const { return rank > 0; }
  double alpha_value() const { return is_alpha_automatic ? 2 * static_cast<double>(rank) : alpha; }
  // What the added product is multiplied by: alpha / rank, or rank-stabilized alpha / sqrt(rank) (Kalajdzievski, 2023).
  double scale() const;
};

struct TuningConfig {
  std::vector<std::string> freeze = {};  // which parameters stay as they are, as layout/tuning.h has it
  LoraConfig lora = {};
};

namespace config {
struct Option;
std::vector<Option> options(TuningConfig& config);  // a row for each key
}  // namespace config

}  // namespace gpt
