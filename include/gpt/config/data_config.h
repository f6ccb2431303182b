// Where the tokens come from and how batches are made of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt/config/stages.h"

namespace gpt {

enum class Resident { automatic, on, off };  // keep the tokens in device memory: auto = when they fit
enum class Learn { answers, all, last };     // what of a conversation: the assistant's turns, everything, its last turn
enum class DatasetName { none, shakespeare };
enum class DataSchedule { constant, grow };                     // what a run without stages does
enum class DataOrder { random, shorter_first, simpler_first };  // the order of the first epoch; later ones are random

struct DataConfig {
  std::string text;                         // what gpt-prepare takes: a file, folder or glob
  std::string text_field = "text";          // the field to read in .jsonl
  std::string document_separator = "auto";  // as gpt-prepare takes it
  Learn learn = Learn::answers;             // where the text is conversations
  std::string chat_template = "auto";       // what they are laid out in, as chat::lay_out_as() takes it
  bool trust_markup = false;                // special tokens that are spelled out in messages are those tokens
  DatasetName dataset = DatasetName::none;  // a corpus that set-up installed
  std::string bin;                          // prepared token ids, little-endian
  std::string validation_bin;               // where validation tokens are a file of their own
  std::string metadata;                     // JSON beside the bin: vocab_size, dtype
  std::string tokenizer = "char";           // as make_tokenizer() takes it
  std::string cache_dir;                    // where prepared text is kept; empty = ~/.cache/gpt-train
  double cache_limit = 20;                  // GB of it; 0 = no limit
  double validation_fraction = 0.1;         // share of the text's documents; 0 = no validation
  int64_t max_chars = 0;                    // read at most so many characters of the text; 0 = all
  std::vector<Stage> stages;                // empty: one, of main alone
  DataSchedule schedule = DataSchedule::constant;
  DataOrder order = DataOrder::random;
  bool document_mask = false;  // attention stays within a document
  bool packing = true;         // conversations share rows
  // Threads that build batches ahead; 0 = in the training thread. Nothing until the program has chosen it.
  std::optional<int64_t> num_workers = {};
  int64_t prefetch_factor = 2;  // batches ready ahead per worker
  bool pin_memory = true;
  bool persistent_workers = true;
  Resident resident = Resident::automatic;
};

namespace config {
struct Option;
const char* name_of(Learn learn);                 // as the option has it
std::vector<Option> options(DataConfig& config);  // a row for each key
}  // namespace config

}  // namespace gpt
