// The optimizations that gpt-bench can switch on one at a time, and the configuration without any of them.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gpt/config/config.h"
#include "gpt/config/origins.h"
#include "gpt/device/device.h"

namespace gpt::bench {

// What a user asked for.
struct Wanted {
  // NOLINTNEXTLINE(google-explicit-constructor): a configuration of which nothing is known to be written out
  Wanted(Config asked = {}, config::Origins origins = {}) : config(std::move(asked)), written(std::move(origins)) {}
  Config config;
  config::Origins
      written;  // keys that stay as they are, unless all that contradict each other were written or are what is measured
};

struct Rung {
  std::string name;      // as `gpt-bench combo` takes it
  std::string settings;  // what it sets, as a person would write it
  std::function<void(Config& config)> apply;
  std::string obstacle = {};            // why it cannot be measured here; empty: it can
  std::string group = {};               // shared by rungs that set the same in different ways
  std::vector<std::string> needs = {};  // rungs, or one of a group, without which it does nothing
  std::string rival = {};               // the rung that stays in the set rather than this one
};

// The rungs from float32 without any optimization upwards. They restore the vocab_multiple of `wanted`.
std::vector<Rung> rungs(const Config& wanted, const device::DeviceInfo& device);

// The same, and what saves memory: all that `gpt-bench combo` takes.
std::vector<Rung> all_rungs(const Config& wanted, const device::DeviceInfo& device);

// Several rungs as one, with the first obstacle that there is. `names` are joined with '+', and all are known.
Rung combined(const std::string& names, const std::vector<Rung>& all);

// Rungs that `names` joins with '+', in this order. Throws gpt::Error(config) where one is unknown, cannot be measured or comes before what
// it needs.
std::vector<Rung> named_rungs(const std::string& names, const std::vector<Rung>& all);

// Whether a rung of this name or group is in the set.
bool contains(const std::vector<const Rung*>& set, const std::string& name);

// What the rung needs and the set lacks.
std::vector<std::string> missing_needs(const Rung& rung, const std::vector<const Rung*>& set);

// "a", "a and b", "a, b and c".
std::string in_words(const std::vector<std::string>& names);

// What the full set of rungs is measured with besides: batches of 32 to 256 sequences and, where it runs on a GPU, the CPU.
std::vector<Rung> variants(const device::DeviceInfo& device);

// `wanted` as some updates of it are measured: from the start, at the learning rate that a short warm-up leads to, with nothing
// beside the updates.
Config measurable(const Config& wanted);

// A configuration to be measured, and which other settings it had to change because they contradict what was asked for.
struct Adapted {
  Config config;
  std::vector<std::string> also;  // as a person would write them
};
// "X" and what else was changed for it.
std::string with_changes(const std::string& settings, const std::vector<std::string>& also);

Adapted applied(const std::function<void(Config& config)>& change, const Config& config,
                const config::Origins& written = {});

// LibTorch's operators instead of ours.
Adapted with_libtorchs_operators(const Config& config, const config::Origins& written = {});

// `measurable(wanted.config)` with every rung taken away.
Adapted without_rungs(const Wanted& wanted);

}  // namespace gpt::bench
