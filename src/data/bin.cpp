#include "gpt/data/bin.h"

#include <fmt/format.h>

#include <filesystem>
#include <span>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/hash.h"
#include "gpt/data/replacement.h"
#include "gpt/tokenizer/bpe_files.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "stored_ids.h"

namespace gpt::data {
namespace {

namespace fs = std::filesystem;

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string metadata_beside(const std::string& bin) {
  const std::string path = fs::path(bin).replace_extension().string() + "_metadata.json";
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) ? path : "";
}

std::string metadata_path_of(const BinOptions& options) {
  return options.metadata_path.empty() ? metadata_beside(options.path) : options.metadata_path;
}

std::string tokenizer_path(const Bin& bin) {
  return (fs::path(bin.metadata_path).parent_path() / bin.metadata.tokenizer).string();
}

void check_count(const Bin& bin, const std::string& path, int64_t size, int64_t expected) {
  if (!bin.is_split() || size == expected) return;
  fail(path, fmt::format("it holds {} tokens, but {} says {}", size, bin.metadata_path, expected));
}

void require_all_of_prepare(const Bin& bin) {
  const Metadata& metadata = bin.metadata;
  if (bin.metadata_path.empty()) fail(bin.path, "its metadata are missing");
  if (metadata.tokenizer.empty() || metadata.tokenizer_hash.empty() || metadata.bin_hash.empty() || !bin.is_split()) {
    fail(bin.metadata_path, "incomplete: it has to name the tokenizer, the hashes and the counts of both parts");
  }
  const std::string tokenizer = tokenizer_path(bin);
  if (hash128(read_file(tokenizer, ExitCode::data, tokenizer::kTokenizerSize)) != metadata.tokenizer_hash) {
    fail(tokenizer, fmt::format("its content is not what {} was written for (their hashes differ)", bin.metadata_path));
  }
}

// The tokenizer of `spec`, or, where it is empty, that of the metadata.
std::shared_ptr<const tokenizer::Tokenizer> make_tokenizer_of(const Bin& bin, std::string spec) {
  if (spec.starts_with("bpe:")) {
    throw Error(ExitCode::config,
                fmt::format("data.tokenizer: {} is learned from text, but {} holds token ids; name the file of "
                            "the tokenizer that made them",
                            spec, bin.path));
  }
  if (spec.empty() && !bin.metadata.tokenizer.empty()) {
    spec = tokenizer_path(bin);
    std::error_code ignored;
    if (!fs::is_regular_file(spec, ignored)) {
      fail(bin.metadata_path,
           fmt::format("its tokenizer {} is missing; put it there, or name it in data.tokenizer", spec));
    }
  }
  if (spec.empty() && !bin.metadata.tokenizer_hash.empty()) {
    fail(bin.metadata_path, "it has the hash of a tokenizer, but does not name its file; name it in data.tokenizer");
  }
  if (spec.empty()) return nullptr;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer = tokenizer::make_tokenizer(spec, {});
  if (!bin.metadata.tokenizer_hash.empty() && hash128(tokenizer->to_json()) != bin.metadata.tokenizer_hash) {
    fail(spec, fmt::format("not the tokenizer that {} was made with (their hashes differ)", bin.path));
  }
  return tokenizer;
}

int64_t vocabulary_of(const Bin& bin, std::optional<int64_t> vocab_size) {
  if (bin.metadata.vocab_size > 0) {
    if (bin.tokenizer && bin.tokenizer->vocab_size() > bin.metadata.vocab_size) {
      fail(bin.path, fmt::format("its vocabulary has {} ids, but its tokenizer has {}", bin.metadata.vocab_size,
                                 bin.tokenizer->vocab_size()));
    }
    return bin.metadata.vocab_size;
  }
  if (bin.tokenizer) return bin.tokenizer->vocab_size();
  if (vocab_size) return *vocab_size;
  const std::string file = (fs::path(bin.path).parent_path() / kTokenizerFile).string();
  std::error_code ignored;
  throw Error(ExitCode::config,
              fmt::format("data.bin: the vocabulary of {} is not known, and tokenizer char, the default, does not say "
                          "that of a bin; set data.tokenizer (gpt2 or a tokenizer file{}), data.metadata (JSON with "
                          "vocab_size and dtype) or model.vocab_size",
                          bin.path, fs::is_regular_file(file, ignored) ? " such as " + file : ""));
}

// One of the files, its ids as wide as the metadata say.
Tokens open_part(const Bin& bin, const std::string& path) {
  const int width = bin.metadata.width_bytes;
  const Tokens tokens = open_token_file(path, width == 0 ? std::nullopt : std::optional(width), bin.vocab_size).tokens;
  // Metadata with a hash were written together with the bin.
  const bool is_certain = width == 0 || !bin.metadata.bin_hash.empty();
  const auto* data = static_cast<const std::byte*>(tokens.data());
  if (is_certain || evident_width({data, static_cast<size_t>(tokens.bytes())}) <= tokens.width()) return tokens;
  fail(path,
       fmt::format("{} says that its ids have {} bits, but then every second one would be 0: correct 'dtype' there",
                   bin.metadata_path, 8 * width));
}

// The tokens of conversations with their marks, which lie beside them.
Tokens with_marks(const Bin& bin, const Tokens& tokens) {
  if (bin.metadata.conversations.shape.empty()) return tokens;
  const std::string path = marks_beside(bin.path);
  const auto file = std::make_shared<const MappedFile>(path, ExitCode::data);
  const std::span<const std::byte> marks = file->bytes();
  if (static_cast<int64_t>(marks.size()) != tokens.size()) {
    fail(path, fmt::format("it holds {} marks, but {} has {} tokens", marks.size(), bin.path, tokens.size()));
  }
  if (!bin.validation_path.empty()) {
    fail(bin.validation_path, fmt::format("the conversations of {} have a validation part of their own; leave "
                                          "data.validation_bin out",
                                          bin.path));
  }
  return tokens.with_marks(file, reinterpret_cast<const uint8_t*>(marks.data()));
}

// Both parts, their sizes checked against the metadata.
void open_tokens(Bin& bin, double validation_fraction) {
  const int64_t train = bin.metadata.train.tokens, validation = bin.metadata.validation.tokens;
  bin.train = with_marks(bin, open_part(bin, bin.path));
  if (bin.validation_path.empty()) {
    const Tokens all = bin.train;
    check_count(bin, bin.path, all.size(), train + validation);
    const int64_t position = bin.is_split() ? train : training_tokens(all.size(), validation_fraction);
    bin.train = all.slice(0, position);
    bin.validation = all.slice(position, all.size());
    return;
  }
  std::error_code ignored;
  if (fs::equivalent(bin.path, bin.validation_path, ignored)) {
    fail(bin.validation_path,
         "data.bin and data.validation_bin are the same file; leave data.validation_bin out, and the end of "
         "data.bin is kept for validation");
  }
  bin.validation = open_part(bin, bin.validation_path);
  check_count(bin, bin.path, bin.train.size(), train);
  // Metadata without a validation part says nothing of a validation file that came otherwise.
  if (validation > 0) check_count(bin, bin.validation_path, bin.validation.size(), validation);
}

}  // namespace

std::string marks_beside(const std::string& bin) { return fs::path(bin).replace_extension().string() + "_marks.bin"; }

Metadata read_metadata_of(const BinOptions& options) {
  finish_replacement(folder_of(options.path));
  const std::string path = metadata_path_of(options);
  return path.empty() ? Metadata() : read_metadata(path);
}

Bin open_bin(const BinOptions& options) {
  Metadata metadata = read_metadata_of(options);
  Bin bin{options.path, options.validation_path, metadata_path_of(options), std::move(metadata)};
  if (options.is_prepared) require_all_of_prepare(bin);
  if (const Bin* main = options.main) {
    const std::string& made_with = bin.metadata.tokenizer_hash;
    if (main->tokenizer && !made_with.empty() && made_with != hash128(main->tokenizer->to_json())) {
      fail(bin.path, "data.stages: made with a different tokenizer than the main data");
    }
    bin.tokenizer = main->tokenizer;
    bin.vocab_size = main->vocab_size;
  } else {
    const std::string& made_with = bin.metadata.tokenizer_hash;
    if (options.saved_tokenizer && !made_with.empty() && made_with != hash128(options.saved_tokenizer->to_json()))
      fail(bin.path, "made with another tokenizer than the checkpoint's");
    bin.tokenizer = options.saved_tokenizer ? options.saved_tokenizer : make_tokenizer_of(bin, options.tokenizer);
    bin.vocab_size = vocabulary_of(bin, options.vocab_size);
  }
  open_tokens(bin, options.validation_fraction);
  return bin;
}

}  // namespace gpt::data
