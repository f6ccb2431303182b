#include "gpt/data/corpus.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/installed_data.h"
#include "gpt/tokenizer/utf8.h"

namespace gpt {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

[[noreturn]] void fail(const std::string& source, const std::string& message) {
  throw Error(ExitCode::data, fmt::format("{}: {}", source, message));
}

// The tokenizer knows offsets, not files: name the file in what it throws.
template <class Function>
auto naming(const std::string& source, Function&& function) {
  try {
    return function();
  } catch (const Error& error) {
    if (error.code() != ExitCode::data) throw;
    fail(source, error.what());
  }
}

std::string dataset_path() {
  const std::string path = installed_data("shakespeare.txt");
  if (!path.empty()) return path;
  throw Error(ExitCode::data, "data.dataset: shakespeare is not installed; run ./scripts/quickstart.sh or "
                              "./scripts/get_data.sh in the checkout, or set data.text to a file of yours");
}

Corpus load_text(const std::string& path, const DataConfig& config, const std::string& saved_tokenizer) {
  const MappedFile file(path, ExitCode::data);
  std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  Corpus corpus;
  corpus.source = path;
  naming(path, [&] {
    if (config.max_chars > 0) text = utf8::prefix(text, config.max_chars);
    if (!saved_tokenizer.empty()) {
      corpus.tokenizer = tokenizer_from_json(saved_tokenizer, "the checkpoint's tokenizer");
    } else {
      corpus.tokenizer = make_tokenizer(config.tokenizer, text);
    }
    corpus.vocab_size = corpus.tokenizer->vocab_size();
    corpus.train = Tokens::from_ids(corpus.tokenizer->encode(text), corpus.vocab_size);
  });
  return corpus;
}

// What a bin's metadata says: {"vocab_size": N, "dtype": "uint16" | "uint32", "tokenizer": optional path}.
struct BinMetadata {
  int64_t vocab_size = 0;
  int width_bytes = 2;
  std::string tokenizer;
};

BinMetadata read_metadata(const std::string& path) {
  const json object = json::parse(read_file(path, ExitCode::data), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) fail(path, "not a JSON object; metadata is {\"vocab_size\": N, \"dtype\": \"uint16\"}");

  BinMetadata metadata;
  const json vocab_size = object.value("vocab_size", json());
  if (!vocab_size.is_number_integer() || vocab_size <= 0 || vocab_size > INT32_MAX) {
    fail(path, fmt::format("'vocab_size' is {}; a positive whole number is needed", vocab_size.dump()));
  }
  metadata.vocab_size = vocab_size;

  const json dtype = object.value("dtype", json("uint16"));
  if (dtype != "uint16" && dtype != "uint32") fail(path, fmt::format("'dtype' is {}; known are uint16 and uint32", dtype.dump()));
  metadata.width_bytes = dtype == "uint16" ? 2 : 4;

  const json tokenizer = object.value("tokenizer", json(""));
  if (!tokenizer.is_string()) fail(path, fmt::format("'tokenizer' is {}; a path is needed", tokenizer.dump()));
  if (const std::string name = tokenizer; !name.empty()) metadata.tokenizer = (fs::path(path).parent_path() / name).string();
  return metadata;
}

// The position of the first id outside the vocabulary, or -1. By blocks, so that the common pass is a vectorised maximum.
template <class Id>
int64_t first_outside(const Id* ids, int64_t size, int64_t vocab_size) {
  constexpr int64_t kBlock = 4096;
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, size);
    Id largest = 0;
    for (int64_t i = begin; i < end; ++i) largest = std::max(largest, ids[i]);
    if (largest < vocab_size) continue;
    return std::find_if(ids + begin, ids + end, [&](Id id) { return id >= vocab_size; }) - ids;
  }
  return -1;
}

void check_ids(const Tokens& tokens, int64_t vocab_size, const std::string& path) {
  const int64_t position = tokens.width() == 2
                               ? first_outside(static_cast<const uint16_t*>(tokens.data()), tokens.size(), vocab_size)
                               : first_outside(static_cast<const uint32_t*>(tokens.data()), tokens.size(), vocab_size);
  if (position < 0) return;
  const auto id = static_cast<uint32_t>(tokens[position]);
  fail(path, fmt::format("token {} has id {}, outside the vocabulary of {}; check vocab_size and dtype in its metadata",
                         position, id, vocab_size));
}

Corpus load_bin(const DataConfig& config, const std::string& saved_tokenizer, std::optional<int64_t> vocab_size) {
  BinMetadata metadata;
  if (!config.metadata.empty()) {
    metadata = read_metadata(config.metadata);
  } else if (vocab_size) {
    metadata.vocab_size = *vocab_size;
  } else {
    throw Error(ExitCode::config, fmt::format("data.bin: the vocabulary of {} is not known; set data.metadata (JSON with "
                                              "vocab_size and dtype) or model.vocab_size (then its ids are uint16)",
                                              config.bin));
  }
  Corpus corpus;
  corpus.source = config.bin;
  corpus.vocab_size = metadata.vocab_size;
  corpus.train = Tokens::map_file(config.bin, metadata.width_bytes);
  check_ids(corpus.train, corpus.vocab_size, config.bin);

  // `char` is the default, and means nothing here: it would have to be built from the text that a bin lacks.
  const std::string spec = !metadata.tokenizer.empty() ? metadata.tokenizer : config.tokenizer == "char" ? "" : config.tokenizer;
  if (!saved_tokenizer.empty()) {
    corpus.tokenizer = tokenizer_from_json(saved_tokenizer, "the checkpoint's tokenizer");
  } else if (!spec.empty()) {
    corpus.tokenizer = make_tokenizer(spec, {});
  }
  if (corpus.tokenizer && corpus.tokenizer->vocab_size() > corpus.vocab_size) {
    fail(config.bin, fmt::format("its vocabulary has {} ids but its tokenizer {}", corpus.vocab_size,
                                 corpus.tokenizer->vocab_size()));
  }
  return corpus;
}

void check_length(const Corpus& corpus, const char* split, int64_t size, int64_t total, double fraction, int64_t block_size) {
  if (size >= block_size + 1) return;
  fail(corpus.source, fmt::format("the {} split has {} tokens, block_size {} needs at least {} ({} tokens, "
                                  "validation_fraction {}); use a longer text, a smaller model.block_size or another "
                                  "data.validation_fraction",
                                  split, size, block_size, block_size + 1, total, fraction));
}

std::string fingerprint(const Tokens& all, int64_t split, const Tokenizer* tokenizer) {
  const std::string json = tokenizer ? tokenizer->to_json() : "";
  XXH3_state_t* state = XXH3_createState();
  XXH3_128bits_reset(state);
  XXH3_128bits_update(state, all.data(), static_cast<size_t>(all.size()) * all.width());
  XXH3_128bits_update(state, &split, sizeof split);
  XXH3_128bits_update(state, json.data(), json.size());
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

Corpus load_corpus(const DataConfig& config, int64_t block_size, const std::string& saved_tokenizer,
                   std::optional<int64_t> vocab_size) {
  // config::validate has refused two sources and keys that do not go together.
  Corpus corpus;
  if (!config.bin.empty()) {
    corpus = load_bin(config, saved_tokenizer, vocab_size);
  } else if (config.dataset == DatasetName::shakespeare) {
    corpus = load_text(dataset_path(), config, saved_tokenizer);
  } else if (!config.text.empty()) {
    corpus = load_text(config.text, config, saved_tokenizer);
  } else {
    throw Error(ExitCode::config, "data: nothing to read; set data.text FILE, data.dataset shakespeare or data.bin FILE");
  }

  const Tokens all = corpus.train;
  const auto split = static_cast<int64_t>(static_cast<double>(all.size()) * (1 - config.validation_fraction));
  corpus.train = all.slice(0, split);
  corpus.validation = all.slice(split, all.size());
  check_length(corpus, "training", split, all.size(), config.validation_fraction, block_size);
  if (config.validation_fraction > 0) {
    check_length(corpus, "validation", all.size() - split, all.size(), config.validation_fraction, block_size);
  }
  corpus.fingerprint = fingerprint(all, split, corpus.tokenizer.get());
  return corpus;
}

int64_t vocabulary_for(const Corpus& corpus, std::optional<int64_t> configured) {
  if (!configured) return corpus.vocab_size;
  if (*configured >= corpus.vocab_size) return *configured;
  throw Error(ExitCode::config, fmt::format("model.vocab_size {} is too small for {}, which has {} tokens: set it to auto, or to {} "
                                            "or more", *configured, corpus.source, corpus.vocab_size, corpus.vocab_size));
}

}  // namespace gpt
