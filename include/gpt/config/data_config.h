// Where the tokens come from and how batches are made of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gpt {

enum class Resident { automatic, on, off };  // keep the tokens in device memory: auto = when they fit
enum class DatasetName { none, shakespeare };
enum class DataOrder { random, shorter_first, simpler_first };  // of the first epoch; later ones are random

// A part of a run that reads other files, in other proportions, or in shorter sequences.
struct Stage {
  int64_t from = 0;                   // the step it begins with
  std::optional<int64_t> block_size;  // auto: the model's; shorter ones come in larger batches, of as many tokens
  // Files and their weights; "main" is the text, dataset or bin of the section. Empty: main alone.
  std::vector<std::pair<std::string, double>> mix;
  bool operator==(const Stage&) const = default;
};
constexpr const char* kMainSource = "main";

struct DataConfig {
  std::string text;                          // what gpt-prepare takes: a file, folder or glob
  std::string text_field = "text";           // of .jsonl
  DatasetName dataset = DatasetName::none;   // a corpus that set-up installed
  std::string bin;                           // prepared token ids, little-endian
  std::string validation_bin;                // where validation tokens are a file of their own
  std::string metadata;                      // JSON beside the bin: vocab_size, dtype
  std::string tokenizer = "char";            // as make_tokenizer() takes it
  std::string cache_dir;                     // where prepared text is kept; empty = ~/.cache/gpt-train
  double cache_limit = 20;                   // GB of it; 0 = no limit
  double validation_fraction = 0.1;          // of the text's documents; 0 = no validation
  int64_t max_chars = 0;                     // read at most so many characters of the text; 0 = all
  std::vector<Stage> stages;                 // empty: one, of main alone
  DataOrder order = DataOrder::random;
  int64_t num_workers = 4;                   // threads that build batches ahead; 0 = in the training thread
  int64_t prefetch_factor = 2;               // batches ready ahead per worker
  bool pin_memory = true;
  bool persistent_workers = true;
  Resident resident = Resident::automatic;
};

}  // namespace gpt
