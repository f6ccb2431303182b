#include "gpt/prepare/prepare_command.h"

#include <fmt/format.h>

#include "gpt/config/arguments.h"
#include "gpt/config/data_config.h"
#include "gpt/core/error.h"

namespace gpt::prepare {
namespace {

constexpr const char* kExamples = R"(  gpt-prepare --input book.txt --tokenizer bpe:4096 --output data/book
  gpt-prepare --input texts/ --input 'more/*.jsonl.zst' --output data/mine
  gpt-prepare --input chats.jsonl --tokenizer smollm2 --output data/chats
  gpt-prepare --input CC-MAIN-*.warc.wet.gz --tokenizer gpt2 --output data/cc
  zcat dump.jsonl.gz | gpt-prepare --input -.jsonl --output data/dump
)";

constexpr const char* kEnding = R"(Inputs
  A file of JSON lines may hold conversations instead (messages; prompt and completion; Alpaca's and ShareGPT's fields): each is a document.
  A text file is one document, or several where a line of it is <|endoftext|> and nothing else (--document-separator); so is each line of JSON lines (.jsonl, .ndjson, .json) and each record of .wet. What is packed with gzip or zstd is unpacked. A file that holds one of these under another name is read as what it holds, and a line says so.
  In text files CRLF becomes LF, and a byte-order mark at the start is dropped.
  In a folder all files are read, in the order of their paths, and ** in a pattern is any number of folders. What is hidden is left out, and so are the folders that gpt-train and gpt-prepare write; files that are empty, damaged or not text are passed over and counted. --list shows all of it.
  - is standard input: text, or with a suffix (-.jsonl.gz) what a file of that name would be.

Exit status
  0 done, 2 wrong usage, 3 a text that cannot be read, 7 out of memory, 8 disk; 130, 143 or 129 after Ctrl-C, SIGTERM or SIGHUP, with nothing written.
)";

std::vector<config::Section> sections(PrepareCommand& command) {
  using config::switch_row;
  PrepareOptions& o = command.options;
  return {
      {"Input",
       {{.name = "input",
         .target = &o.inputs,
         .help = "files, folders, patterns in quotes, or -; several may follow, and the flag may be repeated",
         .aliases = {{"i"}},
         .is_path = true},
        {.name = "text-field", .target = &o.text_field, .help = "field of .jsonl that holds the text"},
        {.name = "learn",
         .target = config::choice(o.learn, {{config::name_of(Learn::answers), Learn::answers},
                                            {config::name_of(Learn::all), Learn::all},
                                            {config::name_of(Learn::last), Learn::last}}),
         .help =
             "what is learned of conversations: answers = all that the assistant says, last = its last answer, all = every word"},
        {.name = "document-separator",
         .target = &o.document_separator,
         .help =
             "line that ends a document in a text file, and is no part of it; auto = <|endoftext|> and the tokenizer's own end "
             "of text; none = such lines are text"},
        {.name = "max-chars", .target = &o.max_chars, .help = "read at most this many characters; 0 = all", .min = 0},
        {.name = "deduplicate",
         .target = config::choice(
             o.deduplicate, {{"exact", Deduplicate::exact}, {"near", Deduplicate::near}, {"none", Deduplicate::none}}),
         .help = fmt::format(
             "leave out documents that repeat an earlier one: exact = all of it, near = {} of its runs of five "
             "words (MinHash), none = keep them; exact and near read the input once more",
             kNearThreshold)},
        switch_row("list", command.list, "show which files would be read, how, and which would not; write nothing")}},
      {"Tokens",
       {{.name = "tokenizer",
         .target = &o.tokenizer,
         .help =
             "gpt2, char, byte, bpe:N to train one with N tokens, or a file (tokenizer.json, tokenizer.model, .tiktoken, vocab.bpe); or that of a model: a "
             "run, a checkpoint or a folder of Hugging Face's form, whose chat template conversations are laid out in",
         .aliases = {{"t"}},
         .is_path = true},
        {.name = "min-frequency",
         .target = &o.min_frequency,
         .help = "bpe:N merges only pairs that occur at least this often",
         .min = 0},
        {.name = "chat-template",
         .target = &o.chat_template,
         .help =
             "how conversations are laid out: auto = in the model's own chat template, or in ChatML where it has none; chatml, llama2, "
             "llama3, zephyr, alpaca, plain, or a file of Jinja",
         .is_path = true},
        switch_row(
            "trust-markup", o.trust_markup,
            "special tokens that are spelled out in the messages of conversations are those tokens; otherwise they are text"),
        switch_row(
            "parse-special-tokens", o.parse_special_tokens,
            "text such as <|endoftext|> within a line becomes the special token; otherwise it is ordinary text")}},
      {"Output",
       {{.name = "output",
         .target = &command.output_dir,
         .help = "folder for the files; created if it does not exist",
         .aliases = {{"o"}},
         .is_path = true},
        {.name = "format",
         .target = config::choice(
             o.format, {{"prepared", BinFormat::prepared}, {"nanogpt", BinFormat::nanogpt}, {"llmc", BinFormat::llmc}}),
         .help =
             "prepared = tokens_bpe.bin, bpe_tokenizer.json and tokens_bpe_metadata.json; nanogpt or llmc = train.bin, "
             "val.bin and bpe_tokenizer.json"},
        {.name = "validation-fraction",
         .target = &o.validation_fraction,
         .help = "share of the documents kept for validation (where they are few: of the tokens, from the end)",
         .min = 0,
         .max = 0.999},
        {.name = "seed",
         .target = &o.seed,
         .help = "decides which documents are for validation",
         .min = 0,
         .aliases = {{"s"}}},
        switch_row("json", command.json, "print what was read and written as JSON on standard output"),
        switch_row("force", o.force, "replace files in the output folder that another program may have made")}},
      {"Machine",
       {{.name = "threads", .target = &o.threads, .help = "CPU threads; 0 = all cores", .min = 0, .max = 1024}}},
  };
}

[[noreturn]] void refuse(const char* message) { throw Error(ExitCode::config, message); }

}  // namespace

std::optional<PrepareCommand> parse_prepare_options(int argc, const char* const* argv) {
  PrepareCommand command;
  command.options.deduplicate = Deduplicate::exact;
  command.options.chat_format = tokenizer::TextFormat();
  const std::vector<config::Section> options = sections(command);
  const auto arguments =
      config::parse_arguments({.name = "gpt-prepare",
                               .description =
                                   "Turns text into token ids to train on: documents in, bins out, on all cores.",
                               .usage = "--input FILE ... --output FOLDER [--FLAG VALUE ...]",
                               .sections = options,
                               .guide = {.examples = kExamples, .ending = kEnding},
                               .flag_for = [](const std::string&) { return "--input"; }},
                              argc, argv);
  if (!arguments) return std::nullopt;
  config::apply_settings(arguments->settings, config::rows_of(options));
  if (command.options.inputs.empty()) refuse("nothing to read: give --input FILE, FOLDER or -; see gpt-prepare --help");
  if (command.list && command.json) refuse("--list and --json exclude each other: --list has lines of text");
  if (command.output_dir.empty() && !command.list)
    refuse("nowhere to write: give --output FOLDER; see gpt-prepare --help");
  return command;
}

}  // namespace gpt::prepare
