#include "gpt/prepare/prepare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "bin_writer.h"
#include "chunk_encoder.h"
#include "document_reader.h"
#include "gpt/chat/chat_layout.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/hash.h"
#include "gpt/core/lock.h"
#include "gpt/core/log.h"
#include "gpt/data/replacement.h"
#include "gpt/data/token_file.h"
#include "gpt/tokenizer/bpe.h"
#include "gpt/tokenizer/bpe_trainer.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "gpt/tokenizer/text_error.h"
#include "gpt/tokenizer/utf8.h"
#include "input_passes.h"
#include "separators.h"
#include "split_choice.h"

namespace gpt::prepare {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& message) { throw Error(ExitCode::config, message); }

// Marks every character of the chunk. Throws InvalidUtf8 with the offset in the chunk.
void mark_characters(const Chunk& chunk, std::vector<std::atomic<bool>>& seen) {
  size_t offset = 0;
  for (const DocumentPart& part : chunk.parts) {
    const std::string_view text = std::string_view(chunk.text).substr(0, part.end);
    while (offset < text.size()) {
      const auto [value, bytes] = utf8::decode(text, offset);
      if (!seen[value].load(std::memory_order_relaxed)) seen[value].store(true, std::memory_order_relaxed);
      offset += bytes;
    }
  }
}

// The tokenizer's JSON, which has been read back: ids are worth nothing without it.
std::string readable_json(const tokenizer::Tokenizer& tokenizer) {
  const std::string json = tokenizer.to_json();
  if (tokenizer::tokenizer_from_json(json, "the tokenizer of the output")->to_json() == json) return json;
  throw Error(ExitCode::data,
              fmt::format("the tokenizer {} cannot be saved: it differs when it is read back", tokenizer.name()));
}

void warn_of_unseparated(int64_t unseparated, int64_t documents, const tokenizer::Tokenizer& tokenizer) {
  if (unseparated == 0 || documents < 2) return;
  std::string special;
  for (const tokenizer::SpecialToken& token : tokenizer.special_tokens()) special += " " + token.text;
  log::warn(fmt::format(
      "{} of {} documents run into the next one: they end without a line break, and the tokenizer {} has no special token "
      "for the end of a text, such as <|endoftext|>, to separate them{}",
      with_commas(unseparated), with_commas(documents), tokenizer.name(),
      special.empty() ? "" : fmt::format(" (it has{})", special)));
}

class Preparation {
 public:
  Preparation(const PrepareOptions& options, const std::string& folder, data::Replacement& output,
              const std::function<bool(const PrepareProgress&)>& progress)
      : options_(options),
        folder_(folder),
        output_(output),
        progress_(progress),
        input_(options_, folder, [this](const PrepareProgress& now) { report(now); }) {}

  data::Metadata run();

 private:
  std::vector<std::string> output_files() const;
  void refuse_foreign_output() const;
  void require_space() const;
  void require_fitting_options() const;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer();
  std::shared_ptr<const tokenizer::Tokenizer> lay_out(std::shared_ptr<const tokenizer::Tokenizer> tokenizer);
  std::string characters();
  [[noreturn]] void refuse_without_answers(const data::ConversationCounts& counts) const;
  [[noreturn]] void refuse_without_text(const DocumentReader& reader) const;
  DocumentReader reader_of_pieces(const tokenizer::BpeTrainingOptions& training);
  void read(DocumentReader& reader, const std::function<void(const Chunk&)>& take);
  TrainingSide training_side(const tokenizer::BpeTrainingOptions& training);
  tokenizer::BpeModel trained_bpe(int64_t vocab_size);
  std::unique_ptr<BinWriter> encode(const tokenizer::Tokenizer& tokenizer, data::Metadata& metadata);
  void commit(const std::string& tokenizer, std::unique_ptr<BinWriter> writer, const data::Metadata& metadata);

  void report(const PrepareProgress& progress) {
    last_ = progress;
    const bool is_read_back =
        reading_back_.valid() && reading_back_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    if (is_read_back) (void)reading_back_.get();  // early, where it throws
    if (progress_ && !progress_(progress))
      throw Error(ExitCode::interrupted, "interrupted; nothing was written to " + folder_);
  }

  PrepareOptions options_;  // with the chat template, once it is chosen
  const std::string& folder_;
  data::Replacement& output_;
  const std::function<bool(const PrepareProgress&)>& progress_;
  PrepareProgress last_{"reading", 0, 0};  // that was reported
  InputPasses input_;
  std::shared_future<std::string> reading_back_;  // the tokenizer's JSON
};

data::Metadata Preparation::run() {
  tokenizer::trained_vocabulary(options_.tokenizer);
  refuse_foreign_output();
  require_fitting_options();
  require_space();
  const std::shared_ptr<const tokenizer::Tokenizer> tokenizer = this->tokenizer();
  const int width = data::width_for(tokenizer->vocab_size());
  if (options_.format == BinFormat::nanogpt && width > 2) {
    refuse(fmt::format("a vocabulary of {} does not fit the 16-bit ids of nanogpt bins; use another --format",
                       tokenizer->vocab_size()));
  }
  // perf: a vocabulary of 50,000 tokens takes a fifth of a second, in which the first texts are encoded.
  reading_back_ = std::async([tokenizer] { return readable_json(*tokenizer); });
  data::Metadata metadata;
  std::unique_ptr<BinWriter> writer = encode(*tokenizer, metadata);
  const std::string& json = reading_back_.get();
  metadata.tokenizer_hash = hash128(json);
  commit(json, std::move(writer), metadata);
  return metadata;
}

std::vector<std::string> Preparation::output_files() const {
  std::vector<std::string> files = BinWriter::file_names(options_.format);
  files.push_back(data::kTokenizerFile);
  if (options_.format == BinFormat::prepared) files.push_back(data::kMetadataFile);
  return files;
}

// The metadata is written last, and tells a whole former output from files that came otherwise.
void Preparation::refuse_foreign_output() const {
  if (options_.force) return;
  if (options_.format == BinFormat::prepared) {
    try {
      data::read_metadata(folder_ + "/" + data::kMetadataFile);
      return;
    } catch (const Error&) {}
  }
  for (const std::string& name : output_files()) {
    const std::string path = folder_ + "/" + name;
    std::error_code none;
    if (fs::exists(fs::symlink_status(path, none))) {
      refuse(fmt::format(
          "{} is in the way, and gpt-prepare may not have made it; --force replaces it, or choose another --output",
          path));
    }
  }
}

void Preparation::require_fitting_options() const {
  if (!options_.chat_format) return;  // where it does not matter what they are
  if (!input_.conversations()) {
    if (options_.learn != Learn::answers || options_.trust_markup || options_.chat_template != chat::kOwnTemplate)
      refuse("--learn, --chat-template and --trust-markup are for conversations, and the input holds texts");
    return;
  }
  if (options_.format != BinFormat::prepared)
    refuse("conversations have marks beside their ids, which only --format prepared has");
  if (options_.parse_special_tokens) refuse("for conversations --trust-markup does what --parse-special-tokens does");
}

// A floor, so that nothing is refused that would fit: packed text counts twice, and few texts have above six bytes a token.
void Preparation::require_space() const {
  const double bytes_per_token = options_.tokenizer == "byte" ? 1 : options_.tokenizer == "char" ? 3 : 6;
  double needed = 0;
  for (const Source& source : input_.sources()) needed += source.bytes * (source.packing == Packing::none ? 1 : 2);
  if (options_.max_chars > 0) needed = std::min(needed, static_cast<double>(options_.max_chars));
  needed *= sizeof(uint16_t) / bytes_per_token;
  const uint64_t free = free_disk_space(folder_);
  if (needed <= static_cast<double>(free)) return;
  throw Error(ExitCode::disk,
              fmt::format("{}: the ids of this input need at least {}, but only {} is free; make room, or write to "
                          "another disk",
                          folder_, format_bytes(needed), format_bytes(static_cast<double>(free))));
}

// One that is not learned comes before the first pass over the input, so that it is refused without waiting.
std::shared_ptr<const tokenizer::Tokenizer> Preparation::tokenizer() {
  const std::string& saved = options_.saved_tokenizer;
  const auto vocab_size = saved.empty() ? tokenizer::trained_vocabulary(options_.tokenizer) : std::nullopt;
  std::shared_ptr<const tokenizer::Tokenizer> ready;
  if (!saved.empty()) {
    ready = tokenizer::tokenizer_from_json(saved, "the tokenizer of the run");
  } else if (options_.tokenizer != "char" && !vocab_size) {
    ready = tokenizer::make_tokenizer(options_.tokenizer, {});
  }
  if (input_.conversations()) ready = lay_out(std::move(ready));
  input_.separate_by(separators(options_.document_separator, ready.get()));
  input_.leave_out_repeated();
  if (ready) return ready;
  input_.spool_streams();
  if (vocab_size) return std::make_unique<tokenizer::BpeTokenizer>(trained_bpe(*vocab_size), options_.tokenizer);
  return tokenizer::make_tokenizer("char", characters());
}

// The tokenizer with what the chat template of the conversations needs.
std::shared_ptr<const tokenizer::Tokenizer> Preparation::lay_out(
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer) {
  if (!tokenizer) {
    refuse(
        fmt::format("the input holds conversations, and the tokenizer {} is learned from texts; name that of the model "
                    "which is to learn them: a run, a checkpoint, a folder of Hugging Face's form, byte or gpt2",
                    options_.tokenizer));
  }
  chat::ChatLayout layout =
      chat::lay_out_as(options_.chat_template, options_.chat_format.value(), std::move(tokenizer));
  if (!layout.added.empty())
    log::info(
        fmt::format("New tokens of the tokenizer, for the turns of conversations: {}", fmt::join(layout.added, ", ")));
  options_.chat_format = std::move(layout.format);
  return std::move(layout.tokenizer);
}

void Preparation::refuse_without_text(const DocumentReader& reader) const {
  data::Metadata found;
  input_.describe(reader, found);
  throw Error(ExitCode::data, fmt::format("{}: there is no text in it (files read: {}, passed over: {})",
                                          fmt::join(options_.inputs, " "), found.sources.size(), found.skipped.size()));
}

void Preparation::refuse_without_answers(const data::ConversationCounts& counts) const {
  throw Error(ExitCode::data, fmt::format("{}: there is nothing to learn in it: {} without an answer of the assistant",
                                          fmt::join(options_.inputs, " "), plural(counts.unanswered, "conversation")));
}

// Every character of the input, once.
std::string Preparation::characters() {
  for (;;) {
    std::vector<std::atomic<bool>> seen(utf8::kCodePoints);
    DocumentReader reader = input_.reader(utf8::last_character);
    const auto mark = [&](const Chunk& chunk) {
      try {
        mark_characters(chunk, seen);
      } catch (const tokenizer::InvalidUtf8& error) { reader.refuse(chunk, error.offset(), error.why_and_remedy()); }
      return true;
    };
    input_.pass("reading", reader, mark, [](bool) {});
    if (input_.must_repeat(reader)) continue;
    std::string characters;
    for (char32_t value = 0; value < utf8::kCodePoints; ++value) {
      if (seen[value]) utf8::append(characters, value);
    }
    if (characters.empty()) refuse_without_text(reader);
    return characters;
  }
}

TrainingSide Preparation::training_side(const tokenizer::BpeTrainingOptions& training) {
  for (;;) {
    TrainingSide side(options_);
    if (options_.validation_fraction == 0) return side;
    DocumentReader reader = reader_of_pieces(training);
    read(reader, [&side](const Chunk& chunk) { side.count(chunk); });
    if (!input_.must_repeat(reader)) return side;
  }
}

DocumentReader Preparation::reader_of_pieces(const tokenizer::BpeTrainingOptions& training) {
  return input_.reader([this, &training](std::string_view text) {
    for (;;) {
      const size_t cut = tokenizer::last_piece_boundary(training.split, text);
      const size_t better = options_.parse_special_tokens ? name_across(text, cut, training.special_tokens) : cut;
      if (better == cut) return cut;
      text = text.substr(0, better);
    }
  });
}

void Preparation::read(DocumentReader& reader, const std::function<void(const Chunk&)>& take) {
  input_.pass("reading", reader, [](Chunk chunk) { return chunk; }, take);
}

tokenizer::BpeModel Preparation::trained_bpe(int64_t vocab_size) {
  tokenizer::BpeTrainingOptions training;
  training.vocab_size = vocab_size;
  training.min_frequency = options_.min_frequency;
  training.threads = static_cast<int>(options_.threads);
  for (;;) {
    tokenizer::BpeTrainer trainer(training);
    TrainingSide side = training_side(training);
    bool has_text = false;
    DocumentReader reader = reader_of_pieces(training);
    read(reader, [&](const Chunk& chunk) {
      size_t begin = 0;
      has_text = has_text || !chunk.text.empty();
      for (const DocumentPart& part : chunk.parts) {
        const std::string_view text = side.of(part, std::string_view(chunk.text).substr(begin, part.end - begin));
        const auto add = [&trainer](std::string_view stretch) { trainer.add(stretch); };
        options_.parse_special_tokens ? between_names(text, training.special_tokens, add) : add(text);
        begin = part.end;
      }
    });
    if (input_.must_repeat(reader)) continue;
    if (!has_text) refuse_without_text(reader);
    tokenizer::BpeModel model = trainer.train([this](int64_t done, int64_t total) {
      const auto merges = [](int64_t count) { return static_cast<uint64_t>(count); };
      return !progress_ || progress_({"training the tokenizer", merges(done), merges(total), /*in_bytes=*/false});
    });
    if (const int64_t learned = std::ssize(model.tokens); learned < vocab_size) {
      log::warn(fmt::format("tokenizer {}: the text is too short for so many tokens; {} were learned",
                            options_.tokenizer, with_commas(learned)));
    }
    return model;
  }
}

// What the writer gave, and all of the metadata but the tokenizer's hash.
std::unique_ptr<BinWriter> Preparation::encode(const tokenizer::Tokenizer& tokenizer, data::Metadata& metadata) {
  const auto shape = input_.conversations();
  const ChunkEncoder encoder(tokenizer, options_, shape.has_value());
  metadata.vocab_size = tokenizer.vocab_size();
  metadata.width_bytes = data::width_for(tokenizer.vocab_size());
  metadata.tokenizer = data::kTokenizerFile;
  for (;;) {
    metadata.invalid_utf8_bytes = metadata.ends_as_text = 0;
    metadata.conversations = {};
    int64_t unseparated = 0;
    auto writer = std::make_unique<BinWriter>(
        output_.path(), options_.format, metadata.width_bytes, options_.validation_fraction, [this] { report(last_); },
        shape.has_value());
    DocumentReader reader = input_.reader([&](std::string_view text) { return encoder.last_cut(text); });
    const auto encode = [&](const Chunk& chunk) { return encoder.encode(chunk, reader); };
    input_.pass("encoding", reader, encode, [&](const EncodedChunk& chunk) {
      writer->append(chunk);
      metadata.invalid_utf8_bytes += chunk.invalid_utf8_bytes;
      metadata.ends_as_text += chunk.ends_as_text;
      unseparated += chunk.unseparated;
      metadata.conversations += chunk.conversations;
    });
    if (input_.must_repeat(reader)) continue;
    input_.describe(reader, metadata);
    if (shape) {
      metadata.conversations.shape = chat::name_of(*shape);
      metadata.conversations.learn = config::name_of(options_.learn);
      metadata.conversations.chat_template = encoder.chat_template();
    }
    writer->finish(tokenizer.text_bytes(), metadata);
    warn_of_unseparated(unseparated, metadata.train.documents + metadata.validation.documents, tokenizer);
    if (!metadata.separators.empty() && !tokenizer.end_of_text()) {
      log::info(
          fmt::format("The tokenizer {} has no special token for the end of a text: nothing takes the place of the "
                      "lines that separate documents",
                      tokenizer.name()));
    }
    if (metadata.train.bytes + metadata.validation.bytes + metadata.train.learned > 0) return writer;
    if (metadata.conversations.unanswered > 0) refuse_without_answers(metadata.conversations);
    refuse_without_text(reader);
  }
}

void write_file(const std::string& path, const std::string& text) {
  AtomicFile file(path, text.size());
  file.write(text);
  file.commit();
}

// The metadata come last, with the hashes of the others.
void Preparation::commit(const std::string& tokenizer, std::unique_ptr<BinWriter> writer,
                         const data::Metadata& metadata) {
  writer->commit();
  writer.reset();  // and with it files that were of use on the way
  write_file(output_.path() + "/" + data::kTokenizerFile, tokenizer);
  if (options_.format == BinFormat::prepared) write_file(output_.path() + "/" + data::kMetadataFile, to_json(metadata));
  output_.commit();
}

}  // namespace

data::Metadata prepare(const PrepareOptions& options, const std::string& output_dir,
                       const std::function<bool(const PrepareProgress&)>& progress) {
  if (options.inputs.empty()) refuse("nothing to read: name files, folders or patterns, or - for standard input");
  std::error_code none;
  const bool is_new = !fs::exists(output_dir, none);
  create_folders(output_dir);
  try {
    const FolderLock lock(output_dir, ExitCode::config, "--output");
    data::Replacement output(output_dir);
    return Preparation(options, output_dir, output, progress).run();
  } catch (...) {
    if (is_new) rmdir(output_dir.c_str());  // where it is empty
    throw;
  }
}

}  // namespace gpt::prepare
