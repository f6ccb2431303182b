// What happens when the loss or the norm of the gradients jumps: keys of the section training.
#pragma once

#include <cstdint>
#include <vector>

namespace gpt {

enum class OnDivergence { off, stop, skip, rollback };

struct DivergenceConfig {
  OnDivergence reaction = OnDivergence::off;
  int64_t spike_window = 128;  // updates that one is compared with, and that must follow a checkpoint before it is good
  double spike_threshold = 6;  // as ops::judge() has it
  double rollback_lr_factor = 1;  // for the learning rate, at each rollback
  int64_t max_rollbacks = 3;

  bool looks_for_spikes() const { return reaction != OnDivergence::off; }
  bool goes_back() const { return reaction == OnDivergence::rollback; }
  int64_t kept_checkpoints() const { return goes_back() ? 2 : 0; }  // at most, beside all others
};

namespace config {
struct Option;
std::vector<Option> options(DivergenceConfig& config);  // a row for each key
}  // namespace config

}  // namespace gpt
