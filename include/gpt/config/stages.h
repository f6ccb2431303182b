// The parts of a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gpt {

// A part of a run that reads other files, in other proportions, or in shorter sequences.
struct Stage {
  int64_t from = 0;                   // the step it begins with
  std::optional<int64_t> block_size;  // auto: the model's; shorter ones come in larger batches, of as many tokens
  // Files and their weights; "main" is the text, dataset or bin of the section. Empty: main alone.
  std::vector<std::pair<std::string, double>> mix;
  std::optional<int64_t> attention_window =
      {};  // of the model's windowed layers, at most as long as theirs; auto: theirs
  bool operator==(const Stage&) const = default;
};
constexpr const char* kMainSource = "main";

// data.schedule: grow. Sequences of a quarter, half and all of `block_size` tokens, for a third of so many updates each; none where there
// are too few.
std::vector<Stage> growing_stages(int64_t block_size, int64_t updates);

namespace config {
struct Structure;

// [{from: 0, block_size: 64, mix: {main: 1, hard.txt: 0.5}}]. Reading it throws gpt::Error(config) with the place of the
// fault: an unknown key, a wrong value, steps that do not rise from 0.
Structure structure(std::vector<Stage>& stages);
}  // namespace config

}  // namespace gpt
