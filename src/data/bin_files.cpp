#include "gpt/data/bin_files.h"

#include <fmt/format.h>

#include <filesystem>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/hash.h"
#include "gpt/data/replacement.h"
#include "gpt/tokenizer/bpe_files.h"

namespace gpt {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& message) {
  throw Error(ExitCode::data, fmt::format("{}: {}", path, message));
}

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string metadata_beside(const std::string& bin) {
  const std::string path = fs::path(bin).replace_extension().string() + "_metadata.json";
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) ? path : "";
}

std::string tokenizer_path(const Bin& bin) {
  return (fs::path(bin.metadata_path).parent_path() / bin.metadata.tokenizer).string();
}

void check_count(const Bin& bin, const std::string& path, int64_t size, int64_t expected) {
  if (!bin.is_split() || size == expected) return;
  fail(path, fmt::format("it holds {} tokens, but {} says {}", size, bin.metadata_path, expected));
}

}  // namespace

Bin find_bin(const std::string& path, const std::string& validation_path, const std::string& metadata_path) {
  finish_replacement(folder_of(path));
  Bin bin{path, validation_path, metadata_path.empty() ? metadata_beside(path) : metadata_path};
  if (!bin.metadata_path.empty()) bin.metadata = read_metadata(bin.metadata_path);
  return bin;
}

void require_all_of_prepare(const Bin& bin) {
  const Metadata& metadata = bin.metadata;
  if (bin.metadata_path.empty()) fail(bin.path, "its metadata are missing");
  if (metadata.tokenizer.empty() || metadata.tokenizer_hash.empty() || metadata.bin_hash.empty() || !bin.is_split()) {
    fail(bin.metadata_path, "incomplete: it has to name the tokenizer, the hashes and the counts of both parts");
  }
  const std::string tokenizer = tokenizer_path(bin);
  if (hash128(read_file(tokenizer, ExitCode::data, kTokenizerSize)) != metadata.tokenizer_hash) {
    fail(tokenizer, fmt::format("its content is not what {} was written for (their hashes differ)", bin.metadata_path));
  }
}

std::shared_ptr<const Tokenizer> tokenizer_of(const Bin& bin, std::string spec) {
  if (spec.starts_with("bpe:")) {
    throw Error(ExitCode::config, fmt::format("data.tokenizer: {} is learned from text, but {} holds token ids; name the file of "
                                              "the tokenizer that made them", spec, bin.path));
  }
  if (spec.empty() && !bin.metadata.tokenizer.empty()) {
    spec = tokenizer_path(bin);
    std::error_code ignored;
    if (!fs::is_regular_file(spec, ignored)) {
      fail(bin.metadata_path, fmt::format("its tokenizer {} is missing; put it there, or name it in data.tokenizer", spec));
    }
  }
  if (spec.empty() && !bin.metadata.tokenizer_hash.empty()) {
    fail(bin.metadata_path, "it has the hash of a tokenizer, but does not name its file; name it in data.tokenizer");
  }
  if (spec.empty()) return nullptr;
  std::shared_ptr<const Tokenizer> tokenizer = make_tokenizer(spec, {});
  if (!bin.metadata.tokenizer_hash.empty() && hash128(tokenizer->to_json()) != bin.metadata.tokenizer_hash) {
    fail(spec, fmt::format("not the tokenizer that {} was made with (their hashes differ)", bin.path));
  }
  return tokenizer;
}

int64_t vocabulary_of(const Bin& bin, const Tokenizer* tokenizer, std::optional<int64_t> vocab_size) {
  if (bin.metadata.vocab_size > 0) {
    if (tokenizer && tokenizer->vocab_size() > bin.metadata.vocab_size) {
      fail(bin.path, fmt::format("its vocabulary has {} ids, but its tokenizer has {}", bin.metadata.vocab_size, tokenizer->vocab_size()));
    }
    return bin.metadata.vocab_size;
  }
  if (tokenizer) return tokenizer->vocab_size();
  if (vocab_size) return *vocab_size;
  throw Error(ExitCode::config, fmt::format("data.bin: the vocabulary of {} is not known; set data.metadata (JSON with vocab_size "
                                            "and dtype), data.tokenizer or model.vocab_size", bin.path));
}

Splits open_splits(const Bin& bin, double validation_fraction) {
  const int64_t train = bin.metadata.train.tokens, validation = bin.metadata.validation.tokens;
  const std::optional<int> width = bin.metadata.vocab_size > 0 ? std::optional(bin.metadata.width_bytes) : std::nullopt;
  const Tokens all = open_token_file(bin.path, width).tokens;
  if (bin.validation_path.empty()) {
    check_count(bin, bin.path, all.size(), train + validation);
    const int64_t position = bin.is_split() ? train : training_tokens(all.size(), validation_fraction);
    return {all.slice(0, position), all.slice(position, all.size())};
  }
  std::error_code ignored;
  if (fs::equivalent(bin.path, bin.validation_path, ignored)) {
    fail(bin.validation_path, "data.bin and data.validation_bin are the same file; leave data.validation_bin out, and the end of "
                              "data.bin is kept for validation");
  }
  const Splits splits{all, open_token_file(bin.validation_path, width).tokens};
  check_count(bin, bin.path, splits.train.size(), train);
  // Metadata without a validation part says nothing of a validation file that came otherwise.
  if (validation > 0) check_count(bin, bin.validation_path, splits.validation.size(), validation);
  return splits;
}

}  // namespace gpt
