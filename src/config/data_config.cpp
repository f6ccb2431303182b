#include "gpt/config/data_config.h"

#include "gpt/config/option.h"

namespace gpt::config {

const char* name_of(Learn learn) { return learn == Learn::all ? "all" : learn == Learn::last ? "last" : "answers"; }

// Where the data lie may change while a run rests: its content is compared, not its name.
std::vector<Option> options(DataConfig& c) {
  std::vector<Option> rows = {
      {.name = "text",
       .target = &c.text,
       .help =
           "text to train on: a file, a folder or a pattern such as 'texts/**/*.txt'; plain, JSON lines or .wet, also in .gz and .zst",
       .aliases = {{"data"}, {"data_path"}, {"train_file"}},
       .safe_on_resume = true,
       .is_path = true,
       .tried = {"", "a.txt"}},
      {.name = "text_field", .target = &c.text_field, .help = "field of JSON lines that holds the text"},
      {.name = "document_separator",
       .target = &c.document_separator,
       .help =
           "line of a text file that ends a document, and is no part of it; auto = a line that is the name of the end-of-text token and "
           "nothing else; none = all lines are text"},
      {.name = "learn",
       .target = choice(c.learn, {{name_of(Learn::answers), Learn::answers},
                                  {name_of(Learn::all), Learn::all},
                                  {name_of(Learn::last), Learn::last}}),
       .help =
           "what is learned of conversations: answers = all that the assistant says, last = its last answer, all = every word; of other "
           "texts all is learned"},
      {.name = "chat_template",
       .target = &c.chat_template,
       .help =
           "how conversations are laid out: auto = in the model's own chat template, or in ChatML where it has none; chatml, llama2, "
           "llama3, zephyr, alpaca, plain, or a file of Jinja",
       .is_path = true},
      {.name = "trust_markup",
       .target = &c.trust_markup,
       .help =
           "special tokens that are spelled out in the messages of conversations are those tokens, as transformers has it; otherwise they "
           "are text"},
      {.name = "dataset",
       .target = choice(c.dataset, {{"none", DatasetName::none}, {"shakespeare", DatasetName::shakespeare}}),
       .help = "text installed during set-up, to train on instead of a file",
       .safe_on_resume = true,
       .otherwise = "for any other text, set data.text to its file or folder"},
      {.name = "bin",
       .target = &c.bin,
       .help =
           "file of token ids to train on instead of text, from gpt-prepare, nanoGPT, llm.c, Megatron, lit-gpt or NumPy (.npy)",
       .aliases = {{"bin_file"}, {"train_bin"}, {"input_bin"}},
       .safe_on_resume = true,
       .is_path = true,
       .tried = {"", "a.bin"}},
      {.name = "validation_bin",
       .target = &c.validation_bin,
       .help = "file of validation tokens, if they are not part of bin",
       .aliases = {{"val_bin"}, {"input_val_bin"}},
       .safe_on_resume = true,
       .is_path = true,
       .tried = {"", "b.bin"}},
      {.name = "metadata",
       .target = &c.metadata,
       .help = "JSON file that describes bin (vocab_size, dtype); empty = tokens_bpe_metadata.json in the same folder",
       .aliases = {{"metadata_file"}},
       .safe_on_resume = true,
       .is_path = true,
       .tried = {"", "a.json"}},
      {.name = "tokenizer",
       .target = &c.tokenizer,
       .help = "char, byte, gpt2, bpe:N (N tokens, learned from the training part of the text), or a tokenizer file",
       .aliases = {{"tokenizer_file"}},
       .is_path = true},
      {.name = "cache_dir",
       .target = &c.cache_dir,
       .help = "folder where prepared text is cached; empty = ~/.cache/gpt-train",
       .safe_on_resume = true,
       .is_path = true},
      {.name = "cache_limit",
       .target = &c.cache_limit,
       .help = "GB of prepared text to keep in the cache; the least recently used is removed first; 0 = no limit",
       .min = 0,
       .max = 1e6,
       .safe_on_resume = true},
      {.name = "validation_fraction",
       .target = &c.validation_fraction,
       .help =
           "fraction of the documents (of a single text: its end) held out for validation; 0 = none; a prepared bin has its own",
       .min = 0,
       .max = 0.9,
       .aliases = {{"val_fraction"}, {"validation_split"}, {"val_split"}},
       .tried = {"0.1", "0"}},
      {.name = "max_chars",
       .target = &c.max_chars,
       .help = "read at most this many characters of the text; 0 = all",
       .min = 0,
       .tried = {"0", "1000"}},
      {.name = "stages",
       .target = structure(c.stages),
       .help =
           "parts of the run with other files (main is the data above), weights, sequence lengths or attention_window: "
           "[{from: 0, block_size: 64}, {from: 500, mix: {main: 3, hard.txt: 1}}]; batches keep their number of tokens",
       .tried = {"[]", "[{from: 0, block_size: 64}, {from: 50}]"}},
      {.name = "schedule",
       .target = choice(c.schedule, {{"constant", DataSchedule::constant}, {"grow", DataSchedule::grow}}),
       .help =
           "grow = sequences of a quarter, half and all of block_size, a third of the run each, where stages says nothing",
       .otherwise = "for that of the learning rate, set training.lr_schedule"},
      {.name = "order",
       .target = choice(c.order, {{"random", DataOrder::random},
                                  {"shorter_first", DataOrder::shorter_first},
                                  {"simpler_first", DataOrder::simpler_first}}),
       .help =
           "order of the first epoch: random, by length of the document, or by how well a sequence compresses; later epochs are random"},
      {.name = "document_mask",
       .target = &c.document_mask,
       .help =
           "a token sees only tokens of its own document, which begins with the end-of-text token before it, in training and "
           "validation (on a CPU)",
       .aliases = {{"reset_attention_mask"}}},
      {.name = "packing",
       .target = &c.packing,
       .help =
           "conversations share the sequences of a batch, and a token sees only those of its own (on a CPU); false = each has a sequence "
           "of its own, with padding behind it"},
      {.name = "num_workers",
       .target = &c.num_workers,
       .help =
           "threads that prepare batches in advance; 0 = the training thread does it; auto = 0 on a CPU, and for a GPU one for every two cores, up to 6",
       .min = 0,
       .max = 256,
       .aliases = {{"dataloader_num_workers"}, {"workers"}},
       .safe_on_resume = true,
       .tried = {"0", "2"}},
      {.name = "prefetch_factor",
       .target = &c.prefetch_factor,
       .help = "batches that each worker prepares in advance",
       .min = 0,
       .max = 1024,
       .aliases = {{"dataloader_prefetch_factor"}},
       .safe_on_resume = true,
       .tried = {"2", "0"}},
      {.name = "pin_memory",
       .target = &c.pin_memory,
       .help = "keep batches in page-locked memory, so that copies to a GPU do not block",
       .aliases = {{"dataloader_pin_memory"}},
       .safe_on_resume = true},
      {.name = "persistent_workers",
       .target = &c.persistent_workers,
       .help = "keep the workers running between epochs",
       .safe_on_resume = true},
      {.name = "resident",
       .target = choice(c.resident, {{"auto", Resident::automatic}, {"on", Resident::on}, {"off", Resident::off}}),
       .help = "keep all tokens in device memory; auto = if they fit",
       .safe_on_resume = true},
  };
  for (Option& row : rows) row.section = "data";
  return rows;
}

}  // namespace gpt::config
