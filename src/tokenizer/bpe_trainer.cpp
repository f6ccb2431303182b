#include "gpt/tokenizer/bpe_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/processors.h"
#include "gpt/tokenizer/byte_alphabet.h"
#include "pair_queue.h"
#include "piece_counter.h"

namespace gpt::tokenizer {
namespace {

constexpr int kBytes = 256;
constexpr std::chrono::milliseconds kProgressInterval{100};

[[noreturn]] void refuse(const std::string& why) { throw Error(ExitCode::config, "BPE training: " + why); }

BpeTrainingOptions checked(BpeTrainingOptions options) {
  const std::vector<std::string>& specials = options.special_tokens;
  for (auto special = specials.begin(); special != specials.end(); ++special) {
    if (special->empty()) refuse("a special token is empty; give it some text");
    const std::optional<std::string> spelled = byte_alphabet::bytes(*special);
    if (special->size() == 1 || (spelled && spelled->size() == 1)) {
      refuse(fmt::format("special token '{}' is the token of a byte; make it longer", *special));
    }
    if (std::find(specials.begin(), special, *special) != special) {
      refuse(fmt::format("special token '{}' is given twice", *special));
    }
  }
  const auto least = static_cast<int64_t>(specials.size()) + kBytes;
  if (options.vocab_size < least || options.vocab_size > BpeModel::kMostTokens) {
    throw Error(
        ExitCode::config,
        fmt::format("tokenizer bpe:{0}: a vocabulary of {0} is impossible; with the {1} bytes and {2} it can have "
                    "{3} to {4} entries",
                    options.vocab_size, kBytes, plural(std::ssize(specials), "special token"), with_commas(least),
                    with_commas(BpeModel::kMostTokens)));
  }
  if (options.min_frequency < 0)
    refuse(fmt::format("min_frequency is {}; it must be 0 or more", options.min_frequency));
  if (options.threads <= 0) options.threads = static_cast<int>(usable_processors());
  return options;
}

// The bytes in the order of their tokens: by the code point that spells them.
std::array<unsigned char, kBytes> bytes_by_code_point() {
  std::array<unsigned char, kBytes> bytes;
  std::iota(bytes.begin(), bytes.end(), static_cast<unsigned char>(0));
  std::sort(bytes.begin(), bytes.end(),
            [](unsigned char a, unsigned char b) { return byte_alphabet::character(a) < byte_alphabet::character(b); });
  return bytes;
}

// The vocabulary while it grows.
class Vocabulary {
 public:
  explicit Vocabulary(const BpeTrainingOptions& options) {
    model_.split = options.split;
    for (const std::string& special : options.special_tokens) {
      const auto id = static_cast<int32_t>(model_.tokens.size());
      if (const auto spelled = byte_alphabet::bytes(special)) spelled_by_special_.emplace(*spelled, id);
      model_.special_tokens.push_back({special, id});
      model_.tokens.push_back(special);
    }
    for (const unsigned char byte : bytes_by_code_point()) {
      token_of_byte_[byte] = static_cast<int32_t>(model_.tokens.size());
      model_.tokens.emplace_back(1, static_cast<char>(byte));
    }
  }

  // The token that `pair` becomes. It is a new one unless it is spelled like a special token: a vocabulary file can hold
  // each spelling only once, so that the two are the same token.
  int32_t add_merge(TokenPair pair) {
    model_.merges.push_back(pair);
    std::string bytes = model_.tokens[pair.first] + model_.tokens[pair.second];
    const auto special = spelled_by_special_.find(bytes);
    if (special == spelled_by_special_.end()) {
      model_.tokens.push_back(std::move(bytes));
      return static_cast<int32_t>(model_.tokens.size()) - 1;
    }
    if (model_.tokens[special->second] == bytes) return special->second;
    refuse(fmt::format(
        "special token '{}' is how vocabulary files spell a sequence of bytes that is frequent in the text; spell "
        "it differently",
        model_.tokens[special->second]));
  }

  const BpeModel& model() const { return model_; }
  const std::array<int32_t, kBytes>& token_of_byte() const { return token_of_byte_; }

 private:
  BpeModel model_;
  std::array<int32_t, kBytes> token_of_byte_;
  std::unordered_map<std::string, int32_t> spelled_by_special_;  // bytes, id of the special token
};

}  // namespace

struct BpeTrainer::Impl {
  BpeTrainingOptions options;
  PieceCounter pieces;
};

BpeTrainer::BpeTrainer(BpeTrainingOptions options) {
  options = checked(std::move(options));
  PieceCounter pieces(options.split, options.threads);
  impl_ = std::make_unique<Impl>(Impl{std::move(options), std::move(pieces)});
}

BpeTrainer::~BpeTrainer() = default;

void BpeTrainer::add(std::string_view text) { impl_->pieces.add(text); }

BpeModel BpeTrainer::train(const std::function<bool(int64_t, int64_t)>& progress) {
  const BpeTrainingOptions& options = impl_->options;
  Vocabulary vocabulary(options);
  PairQueue queue(options.min_frequency);
  for (const std::string& token : vocabulary.model().tokens) queue.add_token(token.size());
  const PieceCounter::Total distinct = impl_->pieces.distinct();
  queue.reserve(distinct.pieces, distinct.bytes);
  impl_->pieces.take(
      [&](std::string_view piece, uint64_t count) { queue.add_piece(piece, vocabulary.token_of_byte(), count); });

  const auto size = [&] { return static_cast<int64_t>(vocabulary.model().tokens.size()); };
  const int64_t start = size();
  auto last_report = std::chrono::steady_clock::time_point{};
  const auto report = [&] {
    last_report = std::chrono::steady_clock::now();
    if (progress && !progress(size() - start, options.vocab_size - start)) {
      throw Error(ExitCode::interrupted,
                  fmt::format("BPE training was stopped after {} merges", vocabulary.model().merges.size()));
    }
  };
  while (size() < options.vocab_size) {
    if (std::chrono::steady_clock::now() - last_report >= kProgressInterval) report();
    const std::optional<TokenPair> pair = queue.next();
    if (!pair) break;
    const int64_t before = size();
    const int32_t product = vocabulary.add_merge(*pair);
    if (size() > before) queue.add_token(vocabulary.model().tokens.back().size());
    queue.merge(*pair, product);
  }
  report();
  return vocabulary.model();
}

}  // namespace gpt::tokenizer
