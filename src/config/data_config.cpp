#include "gpt/config/data_config.h"

#include "gpt/config/option.h"

namespace gpt::config {

std::vector<Option> options(DataConfig& c) {
  std::vector<Option> rows = {
      {.name = "text",
       .target = &c.text,
       .help = "a UTF-8 text file to train on",
       .aliases = {{"data"}, {"data_path"}}},
      {.name = "dataset",
       .target = choice(c.dataset, {{"none", DatasetName::none}, {"shakespeare", DatasetName::shakespeare}}),
       .help = "a text that set-up installed, instead of a file"},
      {.name = "bin",
       .target = &c.bin,
       .help = "a file of token ids, instead of text: gpt-prepare's, nanoGPT's, llm.c's or Megatron's",
       .aliases = {{"bin_file"}}},
      {.name = "validation_bin",
       .target = &c.validation_bin,
       .help = "the validation tokens where they are a file of their own; otherwise bin holds both",
       .aliases = {{"val_bin"}}},
      {.name = "metadata",
       .target = &c.metadata,
       .help = "the JSON file that describes bin: vocab_size, dtype; empty = tokens_bpe_metadata.json beside tokens_bpe.bin",
       .aliases = {{"metadata_file"}}},
      {.name = "tokenizer",
       .target = &c.tokenizer,
       .help = "char, byte, or a saved tokenizer's file",
       .aliases = {{"tokenizer_file"}}},
      {.name = "validation_fraction",
       .target = &c.validation_fraction,
       .help = "the last part of the data, kept for validation; 0 = none",
       .min = 0,
       .max = 0.9},
      {.name = "max_chars",
       .target = &c.max_chars,
       .help = "read at most so many characters of the text; 0 = all",
       .min = 0},
      {.name = "num_workers",
       .target = &c.num_workers,
       .help = "threads that build batches ahead; 0 = the training thread",
       .min = 0,
       .max = 256,
       .safe_on_resume = true},
      {.name = "prefetch_factor",
       .target = &c.prefetch_factor,
       .help = "batches ready ahead per worker",
       .min = 0,
       .max = 1024,
       .safe_on_resume = true},
      {.name = "pin_memory",
       .target = &c.pin_memory,
       .help = "page-locked batches, copied to a GPU without waiting",
       .safe_on_resume = true},
      {.name = "persistent_workers",
       .target = &c.persistent_workers,
       .help = "workers live on from epoch to epoch",
       .safe_on_resume = true},
      {.name = "resident",
       .target = choice(c.resident, {{"auto", Resident::automatic}, {"on", Resident::on}, {"off", Resident::off}}),
       .help = "keep all tokens in device memory; auto = where they fit",
       .safe_on_resume = true},
  };
  for (Option& row : rows) row.section = "data";
  return rows;
}

}  // namespace gpt::config
