#include "gpt/data/corpus.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/installed_data.h"
#include "gpt/data/metadata.h"
#include "gpt/data/overlap.h"
#include "gpt/tokenizer/utf8.h"

namespace gpt {
namespace {

namespace fs = std::filesystem;

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

// XXH3-128, fed piece by piece.
class Hash {
 public:
  Hash() : state_(XXH3_createState()) { XXH3_128bits_reset(state_.get()); }
  void update(const void* data, size_t size) { XXH3_128bits_update(state_.get(), data, size); }
  std::string digest() const {  // of all so far; more may follow
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

std::string hash_of(std::string_view text) {
  Hash hash;
  hash.update(text.data(), text.size());
  return hash.digest();
}

// Checks every id and hashes it, in one pass over the memory. `position`: of the first token in the file.
void scan(const Tokens& tokens, int64_t vocab_size, const std::string& path, int64_t position, Hash& hash) {
  constexpr int64_t kPiece = 1 << 18;  // tokens: stays in the cache between the check and the hash
  for (int64_t begin = 0; begin < tokens.size(); begin += kPiece) {
    const Tokens piece = tokens.slice(begin, std::min(begin + kPiece, tokens.size()));
    if (const int64_t bad = first_id_outside(piece, vocab_size); bad >= 0) {
      fail(path, fmt::format("token {} has id {}, outside the vocabulary of {}; check vocab_size and dtype in its metadata",
                             position + begin + bad, static_cast<uint32_t>(piece[bad]), vocab_size));
    }
    hash.update(piece.data(), static_cast<size_t>(piece.bytes()));
  }
}

// The files of a bin and what is known about them.
struct Bin {
  std::string path, validation_path, metadata_path;  // the last two may be empty
  Metadata metadata;                                 // vocab_size 0: there is none
  bool is_split() const { return metadata.train.tokens + metadata.validation.tokens > 0; }
};

// tokens_bpe.bin -> tokens_bpe_metadata.json, where gpt-prepare puts it.
std::string metadata_beside(const std::string& bin) {
  const fs::path path = fs::path(bin).replace_extension().string() + "_metadata.json";
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) ? path.string() : "";
}

Bin describe_bin(const DataConfig& config) {
  Bin bin{config.bin, config.validation_bin, config.metadata.empty() ? metadata_beside(config.bin) : config.metadata, {}};
  if (!bin.metadata_path.empty()) bin.metadata = read_metadata(bin.metadata_path);
  return bin;
}

std::shared_ptr<const Tokenizer> tokenizer_of_bin(const Bin& bin, const DataConfig& config, const std::string& saved_tokenizer) {
  if (!saved_tokenizer.empty()) return tokenizer_from_json(saved_tokenizer, "the checkpoint's tokenizer");
  // `char` is the default, and means nothing here: it would have to be built from the text that a bin lacks.
  std::string spec = config.tokenizer == "char" ? "" : config.tokenizer;
  if (spec.starts_with("bpe:")) {
    throw Error(ExitCode::config, fmt::format("data.tokenizer: {} is learned from text, which {} is not; name the file of the "
                                              "tokenizer that it was made with", spec, bin.path));
  }
  if (spec.empty() && !bin.metadata.tokenizer.empty()) {
    spec = (fs::path(bin.metadata_path).parent_path() / bin.metadata.tokenizer).string();
  }
  if (spec.empty()) return nullptr;
  std::shared_ptr<const Tokenizer> tokenizer = make_tokenizer(spec, {});
  if (!bin.metadata.tokenizer_hash.empty() && hash_of(tokenizer->to_json()) != bin.metadata.tokenizer_hash) {
    fail(spec, fmt::format("not the tokenizer that {} was made with (their hashes differ)", bin.path));
  }
  return tokenizer;
}

int64_t vocabulary_of_bin(const Bin& bin, const Tokenizer* tokenizer, std::optional<int64_t> vocab_size) {
  if (bin.metadata.vocab_size > 0) {
    if (tokenizer && tokenizer->vocab_size() > bin.metadata.vocab_size) {
      fail(bin.path, fmt::format("its vocabulary has {} ids but its tokenizer {}", bin.metadata.vocab_size, tokenizer->vocab_size()));
    }
    return bin.metadata.vocab_size;
  }
  if (tokenizer) return tokenizer->vocab_size();
  if (vocab_size) return *vocab_size;
  throw Error(ExitCode::config, fmt::format("data.bin: the vocabulary of {} is not known; set data.metadata (JSON with vocab_size "
                                            "and dtype), data.tokenizer or model.vocab_size", bin.path));
}

void check_count(const Bin& bin, const std::string& path, int64_t size, int64_t expected) {
  if (!bin.is_split() || size == expected) return;
  fail(path, fmt::format("it holds {} tokens, but {} says {}", size, bin.metadata_path, expected));
}

// The last part of all tokens, as nanoGPT's prepare.py cuts it off.
int64_t split_position(int64_t tokens, double validation_fraction) {
  return static_cast<int64_t>(static_cast<double>(tokens) * (1 - validation_fraction));
}

void set_splits(Corpus& corpus, const Tokens& all, int64_t position) {
  corpus.train = all.slice(0, position);
  corpus.validation = all.slice(position, all.size());
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
    const Tokens all = Tokens::from_ids(corpus.tokenizer->encode(text), corpus.vocab_size);
    set_splits(corpus, all, split_position(all.size(), config.validation_fraction));
  });
  return corpus;
}

Corpus load_bin(const Bin& bin, const DataConfig& config, const std::string& saved_tokenizer, std::optional<int64_t> vocab_size) {
  const SplitCounts &train = bin.metadata.train, &validation = bin.metadata.validation;
  const std::optional<int> width = bin.metadata.vocab_size > 0 ? std::optional(bin.metadata.width_bytes) : std::nullopt;
  Corpus corpus;
  corpus.source = bin.path;
  corpus.tokenizer = tokenizer_of_bin(bin, config, saved_tokenizer);
  corpus.vocab_size = vocabulary_of_bin(bin, corpus.tokenizer.get(), vocab_size);
  corpus.validation_bytes = validation.bytes;
  const TokenFile file = open_token_file(bin.path, width);
  if (!bin.validation_path.empty()) {
    std::error_code ignored;
    if (fs::equivalent(bin.path, bin.validation_path, ignored)) {
      fail(bin.validation_path, "data.bin and data.validation_bin are the same file; leave data.validation_bin out, and the end of "
                                "data.bin is kept for validation");
    }
    corpus.separate_files = true;
    corpus.train = file.tokens;
    corpus.validation = open_token_file(bin.validation_path, width).tokens;
    check_count(bin, bin.path, corpus.train.size(), train.tokens);
    check_count(bin, bin.validation_path, corpus.validation.size(), validation.tokens);
  } else {
    check_count(bin, bin.path, file.tokens.size(), train.tokens + validation.tokens);
    set_splits(corpus, file.tokens,
               bin.is_split() ? train.tokens : split_position(file.tokens.size(), config.validation_fraction));
  }
  return corpus;
}

// Every id is in the vocabulary, and they are those that the metadata was written for. Sets the fingerprint.
void check_content(Corpus& corpus, const Bin& bin) {
  Hash hash;
  scan(corpus.train, corpus.vocab_size, corpus.source, 0, hash);
  const bool separate = corpus.separate_files;
  scan(corpus.validation, corpus.vocab_size, separate ? bin.validation_path : corpus.source, separate ? 0 : corpus.train.size(), hash);
  if (!bin.metadata.bin_hash.empty() && !separate && hash.digest() != bin.metadata.bin_hash) {
    fail(bin.path, fmt::format("its content is not what {} was written for (their hashes differ)", bin.metadata_path));
  }
  const int64_t split = corpus.train.size();
  const std::string tokenizer = corpus.tokenizer ? corpus.tokenizer->to_json() : "";
  hash.update(&split, sizeof split);
  hash.update(tokenizer.data(), tokenizer.size());
  corpus.fingerprint = hash.digest();
}

void check_length(const Corpus& corpus, const char* split, int64_t size, const std::string& arithmetic, int64_t block_size) {
  if (size >= block_size + 1) return;
  fail(corpus.source, fmt::format("the {} split has {} tokens, block_size {} needs at least {}{}", split, size, block_size,
                                  block_size + 1, arithmetic));
}

void check_lengths(const Corpus& corpus, const Bin& bin, double validation_fraction, int64_t block_size) {
  const bool cut_here = !corpus.separate_files && !bin.is_split();
  const std::string arithmetic =
      cut_here ? fmt::format(" ({} tokens, validation_fraction {}); use a longer text, a smaller model.block_size or another "
                             "data.validation_fraction",
                             corpus.train.size() + corpus.validation.size(), validation_fraction)
               : "; use a longer text or a smaller model.block_size";
  check_length(corpus, "training", corpus.train.size(), arithmetic, block_size);
  if (cut_here ? validation_fraction > 0 : corpus.separate_files || corpus.validation.size() > 0) {
    check_length(corpus, "validation", corpus.validation.size(), arithmetic, block_size);
  }
}

// A split cut from one file is disjoint by its making. Two files may be anything; where that takes no more than a second,
// it is found out here, and gpt-diagnose looks whatever the size.
void check_disjoint(const Corpus& corpus, const Bin& bin) {
  constexpr int64_t kQuick = int64_t{1} << 28;  // tokens
  if (!corpus.separate_files || corpus.train.size() > kQuick) return;
  const Overlap overlap = find_overlap(corpus.train, corpus.validation);
  if (overlap.share() <= 0.5) return;
  fail(bin.validation_path,
       fmt::format("validation is contained in training: of {} windows of it, {} are in {} too (token {} there is token {} here); "
                   "the validation loss would mean nothing",
                   overlap.windows, overlap.found, bin.path, overlap.train_position, overlap.validation_position));
}

}  // namespace

Corpus load_corpus(const DataConfig& config, int64_t block_size, const std::string& saved_tokenizer,
                   std::optional<int64_t> vocab_size) {
  // config::validate has refused two sources and keys that do not go together.
  Corpus corpus;
  Bin bin;
  if (!config.bin.empty()) {
    bin = describe_bin(config);
    corpus = load_bin(bin, config, saved_tokenizer, vocab_size);
  } else if (config.dataset == DatasetName::shakespeare) {
    corpus = load_text(dataset_path(), config, saved_tokenizer);
  } else if (!config.text.empty()) {
    corpus = load_text(config.text, config, saved_tokenizer);
  } else {
    throw Error(ExitCode::config, "data: nothing to read; set data.text FILE, data.dataset shakespeare or data.bin FILE");
  }
  check_content(corpus, bin);
  check_lengths(corpus, bin, config.validation_fraction, block_size);
  check_disjoint(corpus, bin);
  return corpus;
}

std::optional<double> text_bytes(const Corpus& corpus, const Tokens& ids) {
  if (!corpus.tokenizer) {
    if (corpus.validation_bytes == 0) return std::nullopt;
    return static_cast<double>(corpus.validation_bytes) / static_cast<double>(corpus.validation.size()) * static_cast<double>(ids.size());
  }
  // Ids beyond the tokenizer's, which a padded vocabulary has, stand for nothing.
  std::vector<int64_t> bytes(static_cast<size_t>(corpus.vocab_size));
  for (int32_t id = 0; id < corpus.tokenizer->vocab_size(); ++id) {
    bytes[id] = static_cast<int64_t>(corpus.tokenizer->decode({&id, 1}).size());
  }
  for (const SpecialToken& special : corpus.tokenizer->special_tokens()) bytes[special.id] = 0;
  int64_t sum = 0;
  for (int64_t i = 0; i < ids.size(); ++i) sum += bytes[ids[i]];
  return static_cast<double>(sum);
}

int64_t vocabulary_for(const Corpus& corpus, std::optional<int64_t> configured) {
  if (!configured) return corpus.vocab_size;
  if (*configured >= corpus.vocab_size) return *configured;
  throw Error(ExitCode::config, fmt::format("model.vocab_size {} is too small for {}, which has {} tokens: set it to auto, or to {} "
                                            "or more", *configured, corpus.source, corpus.vocab_size, corpus.vocab_size));
}

}  // namespace gpt
