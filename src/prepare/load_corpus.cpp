#include "gpt/prepare/load_corpus.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "content.h"
#include "conversation_report.h"
#include "gpt/chat/chat_layout.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/hash.h"
#include "gpt/core/installed_data.h"
#include "gpt/core/log.h"
#include "gpt/core/map_faults.h"
#include "gpt/core/remedies.h"
#include "gpt/core/utf8.h"
#include "gpt/data/bin.h"
#include "gpt/data/overlap.h"
#include "gpt/data/sample_start.h"
#include "gpt/data/stages.h"
#include "gpt/prepare/prepare_report.h"
#include "gpt/prepare/text_cache.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "source_list.h"

namespace gpt::prepare {
namespace {

int64_t file_bytes(const std::string& path) {
  std::error_code none;
  const auto bytes = std::filesystem::file_size(path, none);
  return none ? 0 : static_cast<int64_t>(bytes);
}

std::string dataset_path() {
  const std::string path = installed_data("shakespeare.txt");
  if (!path.empty()) return path;
  throw Error(ExitCode::data,
              fmt::format("data.dataset: shakespeare is not installed; {}, or set data.text to a file of yours",
                          remedies().data));
}

// The text of the configuration; empty where it names a bin.
std::string text_of(const DataConfig& config) {
  // config::validate has refused two sources and keys that do not go together.
  if (config.dataset == DatasetName::shakespeare) return dataset_path();
  if (!config.text.empty() || !config.bin.empty()) return config.text;
  throw Error(ExitCode::config, "data: nothing to read; set data.text FILE, data.dataset shakespeare or data.bin FILE");
}

// The tokenizer that conversations are encoded with.
std::shared_ptr<const tokenizer::Tokenizer> tokenizer_of_chats(const std::string& text, const DataConfig& config,
                                                               const data::Corpus& corpus) {
  if (corpus.tokenizer) return corpus.tokenizer;
  if (config.tokenizer != "char" && !tokenizer::trained_vocabulary(config.tokenizer))
    return tokenizer::make_tokenizer(config.tokenizer, {});
  throw Error(ExitCode::config,
              fmt::format("{} holds conversations, and data.tokenizer: {} is learned from texts; begin with a model "
                          "(training.init_from), or name byte, gpt2 or a tokenizer file",
                          text, config.tokenizer));
}

void announce_layout(const chat::ChatLayout& layout, const std::string& name,
                     const std::optional<tokenizer::TextFormat>& before) {
  const bool is_own = name == chat::kOwnTemplate && before && !before->chat_template.empty();
  if (is_own && layout.added.empty()) return;
  const std::string which = name == chat::kOwnTemplate ? "ChatML, since the model has no chat template" : name;
  const std::string tokens =
      layout.added.empty() ? "" : fmt::format("; new tokens of the tokenizer: {}", fmt::join(layout.added, ", "));
  log::info(fmt::format("Conversations are laid out in {}{}", which, tokens));
}

// The corpus gets the chat template that its conversations are learned in, and the tokens that this needs.
void adopt(chat::ChatLayout layout, const std::string& name, data::Corpus& corpus) {
  announce_layout(layout, name, corpus.text_format);
  if (corpus.tokenizer || !layout.added.empty()) corpus.tokenizer = std::move(layout.tokenizer);
  corpus.text_format = std::move(layout.format);
}

// The format that the conversations of `text` are learned in, which the corpus gets. Nothing for other texts.
std::optional<tokenizer::TextFormat> format_of_chats(const std::string& text, const DataConfig& config,
                                                     data::Corpus& corpus) {
  if (!holds_conversations(text, config)) return std::nullopt;
  const auto tokenizer = tokenizer_of_chats(text, config, corpus);
  adopt(chat::lay_out_as(config.chat_template, corpus.text_format.value_or(tokenizer::TextFormat()), tokenizer),
        config.chat_template, corpus);
  return corpus.text_format;
}

// The same for a bin, whose conversations have been laid out already.
void adopt_template_of_bin(const data::BinOptions& options, const DataConfig& config, data::Corpus& corpus) {
  const std::string of_bin = data::read_metadata_of(options).conversations.chat_template;
  if (of_bin.empty() || !corpus.tokenizer) return;
  const tokenizer::TextFormat format = corpus.text_format.value_or(tokenizer::TextFormat());
  const bool is_open = config.chat_template == chat::kOwnTemplate && format.chat_template.empty();
  chat::ChatLayout layout = is_open ? chat::lay_out(of_bin, format, corpus.tokenizer)
                                    : chat::lay_out_as(config.chat_template, format, corpus.tokenizer);
  if (layout.format.chat_template != of_bin) {
    fail(options.path,
         fmt::format("its conversations are laid out in another chat template than {}; prepare them again, or set "
                     "data.chat_template to what gpt-prepare was given",
                     config.chat_template == chat::kOwnTemplate ? "the model's" : config.chat_template));
  }
  adopt(std::move(layout), is_open ? "the template of the bin" : config.chat_template, corpus);
}

// Checks every id and hashes it, in one pass over the memory. `position`: of the first token in the file.
void scan(const data::Tokens& tokens, int64_t vocab_size, const std::string& path, int64_t position, Hash128& hash) {
  constexpr int64_t kPiece = 1 << 18;  // tokens: stays in the cache between the check and the hash
  ReadingReport report("checking", path, static_cast<uint64_t>(tokens.bytes()));
  for (int64_t begin = 0; begin < tokens.size(); begin += kPiece) {
    report.reached(static_cast<uint64_t>(begin * tokens.width()));
    const data::Tokens piece = tokens.slice(begin, std::min(begin + kPiece, tokens.size()));
    if (const int64_t bad = data::first_id_outside(piece, vocab_size); bad >= 0) {
      fail(path,
           fmt::format("token {} has id {}, outside the vocabulary of {}; check vocab_size and dtype in its metadata",
                       position + begin + bad, static_cast<uint32_t>(piece[bad]), vocab_size));
    }
    hash.update({static_cast<const char*>(piece.data()), static_cast<size_t>(piece.bytes())});
  }
}

std::span<const std::byte> bytes_of(const data::Tokens& tokens) {
  return {static_cast<const std::byte*>(tokens.data()), static_cast<size_t>(tokens.bytes())};
}

// The hash of the marks, which are those that the metadata was written for.
std::string check_marks(const data::Bin& bin) {
  const auto marks_of = [](const data::Tokens& tokens) {
    return std::string_view(reinterpret_cast<const char*>(tokens.marks()), static_cast<size_t>(tokens.size()));
  };
  Hash128 hash;
  hash.update(marks_of(bin.train));
  hash.update(marks_of(bin.validation));
  if (hash.hex() != bin.metadata.conversations.marks_hash) {
    fail(data::marks_beside(bin.path),
         fmt::format("its content is not what {} was written for (their hashes differ)", bin.metadata_path));
  }
  const std::string_view all(marks_of(bin.train).data(), marks_of(bin.train).size() + marks_of(bin.validation).size());
  map_faults::remember(std::as_bytes(std::span(all)), hash.hex());
  return hash.hex();
}

// Every id is in the vocabulary, and they are those that the metadata was written for. Their hash.
Hash128 check_content(const data::Bin& bin) {
  Hash128 hash;
  const bool separate = !bin.validation_path.empty();
  const auto check_hash = [&] {
    if (bin.metadata.bin_hash.empty() || hash.hex() == bin.metadata.bin_hash) return;
    fail(bin.path, fmt::format("its content is not what {} was written for (their hashes differ)", bin.metadata_path));
  };
  scan(bin.train, bin.vocab_size, bin.path, 0, hash);
  map_faults::remember(bytes_of(bin.train), hash.hex());
  if (separate) check_hash();  // the bin holds the training tokens alone
  scan(bin.validation, bin.vocab_size, separate ? bin.validation_path : bin.path, separate ? 0 : bin.train.size(),
       hash);
  if (!separate) check_hash();
  const std::span<const std::byte> validation = bytes_of(bin.validation);
  map_faults::remember(validation, hash128({reinterpret_cast<const char*>(validation.data()), validation.size()}));
  if (bin.train.has_marks()) hash.update(check_marks(bin));
  map_faults::require_intact();
  return hash;
}

// What the options say, or the text, which is prepared unless that was done before. `content`: the hash of its ids.
data::Bin open_checked(const std::string& text, const DataConfig& config, data::BinOptions options,
                       data::Corpus& corpus, Hash128& content) {
  const auto open = [&](const std::string& path) {
    options.path = path;
    data::Bin bin = data::open_bin(options);
    content = check_content(bin);
    return bin;
  };
  if (text.empty()) {
    adopt_template_of_bin(options, config, corpus);
    options.saved_tokenizer = corpus.tokenizer;
    return open(options.path);
  }
  options.is_prepared = true;
  const std::optional<tokenizer::TextFormat> chat_format = format_of_chats(text, config, corpus);
  options.saved_tokenizer = corpus.tokenizer;
  const data::Bin bin = prepared_text(text, config, corpus.tokenizer ? corpus.tokenizer->to_json() : "", chat_format,
                                      corpus.text_format, open);
  corpus.in_use.push_back(bin.in_use);
  corpus.has_json_lines = corpus.has_json_lines || bin.metadata.json_files > 0;
  return bin;
}

void check_lengths(const data::Corpus& corpus, const data::Bin& bin, const DataConfig& config, int64_t block_size) {
  if (corpus.has_conversations) return;  // a sequence has as many of them as there are
  const double fraction = config.validation_fraction;
  const bool separate_files = !bin.validation_path.empty();
  const bool cut_here = !separate_files && (!bin.is_split() || config.bin.empty());
  const std::string arithmetic =
      cut_here
          ? fmt::format(
                " ({} tokens, validation_fraction {}); use a longer text, a smaller training.sequence_length or another "
                "data.validation_fraction",
                corpus.train.size() + corpus.validation.size(), fraction)
          : "; use a longer text or a smaller training.sequence_length";
  const auto check = [&](const char* split, int64_t size) {
    if (size >= block_size + 1) return;
    fail(corpus.source, fmt::format("the {} split has {}, but a sequence of {} needs at least {}{}", split,
                                    plural(size, "token"), block_size, block_size + 1, arithmetic));
  };
  check("training", corpus.train.size());
  const bool wants_validation = cut_here ? fraction > 0 : separate_files || corpus.validation.size() > 0;
  if (wants_validation) check("validation", corpus.validation.size());
}

// A split cut from one file is disjoint by its making. Two files may be anything.
void check_disjoint(const data::Tokens& train, const std::string& train_path, const data::Tokens& validation,
                    const std::string& path) {
  ReadingReport report("comparing", fmt::format("{} and {}", path, train_path), static_cast<uint64_t>(train.bytes()));
  const auto reached = [&](int64_t tokens) { report.reached(static_cast<uint64_t>(tokens * train.width())); };
  const data::Overlap overlap = data::find_overlap(train, validation, reached);
  if (overlap.share() <= 0.5) return;
  fail(path,
       fmt::format(
           "validation is contained in training: of {} windows of it, {} are in {} too (token {} there is token {} "
           "here); the validation loss would mean nothing",
           overlap.windows, overlap.found, train_path, overlap.train_position, overlap.validation_position));
}

// A file that a stage names: its training part where it is split, otherwise all of it.
data::Tokens load_stage_source(const std::string& path, DataConfig config, const data::Bin& main, data::Corpus& corpus,
                               Hash128& hash) {
  const bool is_bin = data::has_name_of_bin(path);
  if (!is_bin && !corpus.tokenizer)
    fail(path, "data.stages: a text needs a tokenizer, and the main data has none; set data.tokenizer");
  config.validation_fraction = 0;
  Hash128 content;
  const data::Bin bin = open_checked(is_bin ? "" : path, config, {.path = path, .main = &main}, corpus, content);
  if (bin.train.has_marks() != main.train.has_marks())
    fail(path, "data.stages: conversations and other texts cannot be learned in one run");
  hash.update(content.hex());
  check_disjoint(bin.train, path, corpus.validation, corpus.source);
  return bin.train;
}

void load_stage_sources(data::Corpus& corpus, const DataConfig& config, const data::Bin& main, int64_t block_size,
                        Hash128& hash) {
  const std::vector<std::string> names = data::stage_sources(config);
  for (const std::string& name : names) {
    corpus.sources.push_back(name == kMainSource ? corpus.train : load_stage_source(name, config, main, corpus, hash));
  }
  for (const Stage& stage : config.stages) {
    const int64_t length = stage.block_size.value_or(block_size);
    for (const auto& [name, weight] : data::mix_of(stage)) {
      const int64_t size = corpus.sources[std::find(names.begin(), names.end(), name) - names.begin()].size();
      if (size <= length) {
        fail(name, fmt::format("the stage from step {} takes sequences of {} + 1 tokens, but it has {}", stage.from,
                               length, size));
      }
    }
  }
}

}  // namespace

data::Corpus load_corpus(const DataConfig& config, int64_t block_size, const std::string& saved_tokenizer,
                         std::optional<int64_t> vocab_size, const std::optional<tokenizer::TextFormat>& format) {
  const std::string text = text_of(config);
  data::Corpus corpus;
  corpus.text_format = format;
  corpus.source = text.empty() ? config.bin : text;
  if (!saved_tokenizer.empty())
    corpus.tokenizer = tokenizer::tokenizer_from_json(saved_tokenizer, "the checkpoint's tokenizer");
  data::BinOptions options{
      .path = config.bin,
      .validation_path = config.validation_bin,
      .metadata_path = config.metadata,
      .validation_fraction = config.validation_fraction,
      // `char` is the default, and means nothing to a bin: it would have to be built from the text that a bin lacks.
      .tokenizer = !text.empty() || config.tokenizer == "char" ? "" : config.tokenizer,
      .vocab_size = vocab_size};
  Hash128 hash;
  const data::Bin bin = open_checked(text, config, options, corpus, hash);
  corpus.tokenizer = bin.tokenizer;
  const std::string& chat_template = bin.metadata.conversations.chat_template;
  if (corpus.tokenizer && !corpus.text_format && !chat_template.empty())
    corpus.text_format = chat::lay_out(chat_template, {}, corpus.tokenizer).format;
  corpus.vocab_size = bin.vocab_size;
  corpus.train = bin.train;
  corpus.validation = bin.validation;
  corpus.has_conversations = bin.train.has_marks();
  corpus.validation_bytes = bin.metadata.validation.bytes;
  corpus.has_own_split = text.empty() && (bin.is_split() || !bin.validation_path.empty());
  check_lengths(corpus, bin, config, block_size);
  if (!bin.validation_path.empty()) check_disjoint(corpus.train, bin.path, corpus.validation, bin.validation_path);
  const int64_t split = corpus.train.size();
  hash.update({reinterpret_cast<const char*>(&split), sizeof split});
  if (corpus.tokenizer) hash.update(corpus.tokenizer->to_json());
  load_stage_sources(corpus, config, bin, block_size, hash);
  corpus.fingerprint = hash.hex();
  if (corpus.has_conversations) report_conversations(corpus, bin.metadata);
  if (corpus.tokenizer) corpus.sample_start = data::sample_start(*corpus.tokenizer, corpus.sources);
  return corpus;
}

namespace {

// The text of one file; no characters where it will be passed over, as far as its beginning shows.
TextEstimate estimate(const Source& source, bool only_utf8) {
  constexpr int64_t kPacked = 4;
  constexpr size_t kHead = 1 << 16;
  if (source.stream) return {source.bytes};
  Packing packing = source.packing;
  bool is_utf8 = true;
  try {
    std::atomic<uint64_t> consumed = 0;
    const Content content = open_content(source, open_file(source, consumed, [] {}));
    packing = content.packing;
    std::string_view head = content.bytes->peek(kHead);
    if (head.size() == kHead) head = head.substr(0, utf8::last_character(head));  // it may be cut off
    is_utf8 = utf8::is_valid(head);
    if (source.found && only_utf8 && !is_utf8) return {0, false};
  } catch (const UnreadableSource&) {
    if (source.found) return {};  // what was named itself is about to be refused
  }
  return {source.bytes * (packing == Packing::none ? 1 : kPacked), is_utf8};
}

}  // namespace

TextEstimate estimate_text(const DataConfig& config) {
  constexpr int64_t kPerTokenByte = 2;  // ids take two bytes or more
  if (!config.bin.empty()) return {kPerTokenByte * (file_bytes(config.bin) + file_bytes(config.validation_bin))};
  if (config.dataset == DatasetName::shakespeare) return {file_bytes(installed_data("shakespeare.txt"))};
  TextEstimate all;
  if (config.text.empty()) return all;
  for (const Source& source : find_sources({config.text}, "", config.cache_dir).sources) {
    const TextEstimate one = estimate(source, /*only_utf8=*/config.tokenizer == "char");
    all.characters += one.characters;
    all.is_utf8 = all.is_utf8 && one.is_utf8;
  }
  if (config.max_chars > 0) all.characters = std::min(all.characters, config.max_chars);
  return all;
}

bool holds_conversations(const DataConfig& config) {
  std::error_code ignored;
  if (!config.bin.empty()) return std::filesystem::is_regular_file(data::marks_beside(config.bin), ignored);
  if (config.text.empty()) return false;
  try {
    return holds_conversations(config.text, config);
  } catch (const Error&) { return false; }  // what is wrong is about to be refused
}

}  // namespace gpt::prepare
