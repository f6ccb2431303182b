#include "gpt/prepare/prepare_command.h"

#include <CLI/CLI.hpp>
#include <map>

#include "gpt/config/arguments.h"

namespace gpt {
namespace {

const std::map<std::string, BinFormat> kFormats = {
    {"prepared", BinFormat::prepared}, {"nanogpt", BinFormat::nanogpt}, {"llmc", BinFormat::llmc}};

constexpr const char* kExamples = R"(Examples:
  gpt-prepare --input book.txt --tokenizer bpe:4096 --output data/book
  gpt-prepare --input texts/ --input 'more/*.jsonl.zst' --output data/mine
  gpt-prepare --input CC-MAIN-*.warc.wet.gz --tokenizer gpt2 --output data/common_crawl
  zcat dump.jsonl.gz | gpt-prepare --input -.jsonl --text-field body --output data/dump

Inputs:
  A text file is one document; so is each line of .jsonl or .ndjson, and each record of .wet. .gz and .zst are unpacked.
  In text files CRLF becomes LF, and a byte-order mark at the start is dropped.
  In a folder all files are read, in the order of their paths. Hidden files are left out; files that are empty, damaged or
  not text are passed over and counted.
  - is standard input: text, or with a suffix (-.jsonl.gz) what a file of that name would be.
)";

void declare(CLI::App& app, PrepareCommand& command, std::string& format) {
  PrepareOptions& options = command.options;
  app.option_defaults()->always_capture_default();

  app.option_defaults()->group("Input");
  app.add_option("-i,--input", options.inputs, "files, folders, patterns in quotes, or -; several may follow, and the option may be repeated")->default_str("");
  app.add_option("--text-field", options.text_field, "field of .jsonl that holds the text");
  app.add_option("--max-chars", options.max_chars, "read at most this many characters; 0 = all");

  app.option_defaults()->group("Tokens");
  app.add_option("-t,--tokenizer", options.tokenizer,
                 "gpt2, char, byte, bpe:N to train one with N tokens, or a file (tokenizer.json, .tiktoken, vocab.bpe)");
  app.add_option("--min-frequency", options.min_frequency, "bpe:N merges only pairs that occur at least this often");
  app.add_flag("--parse-special-tokens", options.parse_special_tokens,
               "text such as <|endoftext|> becomes the special token; otherwise it is ordinary text");

  app.option_defaults()->group("Output");
  app.add_option("-o,--output", command.output_dir, "folder for the files; created if it does not exist")->default_str("");
  app.add_option("--format", format,
                 "prepared = tokens_bpe.bin, bpe_tokenizer.json and tokens_bpe_metadata.json; nanogpt or llmc = train.bin, "
                 "val.bin and bpe_tokenizer.json")
      ->check(CLI::IsMember(&kFormats));
  app.add_option("--validation-fraction", options.validation_fraction,
                 "share of the documents kept for validation (where they are few: of the tokens, from the end)");
  app.add_option("-s,--seed", options.seed, "decides which documents are for validation");
  app.add_flag("--force", options.force, "replace files in the output folder that another program may have made");

  app.option_defaults()->group("Machine");
  app.add_option("--threads", options.threads, "0 = all cores");
  app.footer(kExamples);
}

}  // namespace

std::optional<PrepareCommand> parse_prepare_options(int argc, const char* const* argv) {
  PrepareCommand command;
  std::string format = "prepared";
  CLI::App app("Turns text into token ids to train on: documents in, bins out, on all cores.", "gpt-prepare");
  declare(app, command, format);
  if (!config::parse_arguments(app, argc, argv)) return std::nullopt;
  if (command.options.inputs.empty()) config::refuse_arguments(app, "nothing to read: give --input FILE, FOLDER or -");
  if (command.output_dir.empty()) config::refuse_arguments(app, "nowhere to write: give --output FOLDER");
  command.options.format = kFormats.at(format);
  return command;
}

}  // namespace gpt
