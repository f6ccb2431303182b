// Where the tokens come from and how batches are made of them.
#pragma once

#include <cstdint>
#include <string>

namespace gpt {

enum class Resident { automatic, on, off };  // keep the tokens in device memory: auto = when they fit
enum class DatasetName { none, shakespeare };

struct DataConfig {
  std::string text;                          // a raw UTF-8 text file
  DatasetName dataset = DatasetName::none;   // a corpus that set-up installed
  std::string bin;                           // prepared token ids, little-endian
  std::string validation_bin;                // where validation tokens are a file of their own
  std::string metadata;                      // JSON beside the bin: vocab_size, dtype
  std::string tokenizer = "char";            // char | byte | a saved tokenizer file
  double validation_fraction = 0.1;          // the last part of the text; 0 = no validation
  int64_t max_chars = 0;                     // read at most so many characters of the text; 0 = all
  int64_t num_workers = 4;                   // threads that build batches ahead; 0 = in the training thread
  int64_t prefetch_factor = 2;               // batches ready ahead per worker
  bool pin_memory = true;
  bool persistent_workers = true;
  Resident resident = Resident::automatic;
};

}  // namespace gpt
