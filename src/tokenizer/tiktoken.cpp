#include "tiktoken.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "gpt/core/error.h"
#include "gpt/tokenizer/bpe_files.h"

namespace gpt::tokenizer {
namespace {

using Ranks = std::unordered_map<std::string_view, int32_t>;

// Merging below takes time quadratic in it; the longest token of cl100k_base has 128.
constexpr size_t kMostTokenBytes = 256;

std::optional<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::string bytes;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t digit = i < text.size() - padding ? kDigits.find(text[i]) : 0;
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if (i % 4 != 3) continue;
    for (const int shift : {16, 8, 0}) bytes.push_back(static_cast<char>(bits >> shift & 0xFF));
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

int32_t rank_of(const Ranks& ranks, std::string_view bytes) {
  const auto found = ranks.find(bytes);
  return found == ranks.end() ? INT32_MAX : found->second;
}

// The ends of the parts into which the bytes of a token merge when only ranks below its own are used.
std::vector<size_t> merge_below(const Ranks& ranks, std::string_view token, int32_t rank) {
  std::vector<size_t> ends(token.size());
  for (size_t i = 0; i < ends.size(); ++i) ends[i] = i + 1;
  for (;;) {
    int32_t lowest = rank;
    size_t at = 0;
    for (size_t i = 0, begin = 0; i + 1 < ends.size(); begin = ends[i++]) {
      const int32_t made = rank_of(ranks, token.substr(begin, ends[i + 1] - begin));
      if (made < lowest) lowest = made, at = i;
    }
    if (lowest == rank) return ends;
    ends.erase(ends.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

bool two_tokens_make(const Ranks& ranks, std::string_view token) {
  for (size_t cut = 1; cut < token.size(); ++cut) {
    if (ranks.count(token.substr(0, cut)) != 0 && ranks.count(token.substr(cut)) != 0) return true;
  }
  return false;
}

struct KnownVocabulary {
  size_t ranks;
  SplitPattern split;
  std::vector<SpecialToken> special_tokens;
};

// A .tiktoken file says neither how it splits text nor which tokens are special.
const KnownVocabulary* known_vocabulary(size_t ranks) {
  static const std::array<KnownVocabulary, 3> kKnown = {{
      {50256, SplitPattern::gpt2, {{"<|endoftext|>", 50256}}},
      {100256,
       SplitPattern::cl100k,
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {199998, SplitPattern::o200k, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
  }};
  for (const KnownVocabulary& known : kKnown) {
    if (known.ranks == ranks) return &known;
  }
  return nullptr;
}

void add_special(BpeModel& model, const std::string& text) {
  model.special_tokens.push_back({text, static_cast<int32_t>(model.tokens.size())});
  model.tokens.push_back(text);
}

}  // namespace

std::vector<std::string> read_tiktoken_ranks(std::string_view text, const std::string& origin) {
  std::vector<std::string> tokens;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;

    const size_t space = line.find(' ');
    std::optional<std::string> bytes = decode_base64(line.substr(0, space));
    const std::string_view digits = space == std::string_view::npos ? "" : line.substr(space + 1);
    size_t rank = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (!bytes || digits.empty() || error != std::errc() || stop != digits.data() + digits.size()) {
      throw Error(ExitCode::data,
                  fmt::format("{}: line {} is not a token in base64, a space and its rank", origin, number));
    }
    if (rank != tokens.size()) {
      throw Error(ExitCode::data,
                  fmt::format("{}: line {} has rank {}; {} is expected", origin, number, rank, tokens.size()));
    }
    if (bytes->size() > kMostTokenBytes) {
      throw Error(ExitCode::data, fmt::format("{}: line {} has a token of {} bytes; at most {} are read", origin,
                                              number, bytes->size(), kMostTokenBytes));
    }
    tokens.push_back(std::move(*bytes));
  }
  return tokens;
}

std::vector<std::pair<int32_t, int32_t>> merges_of_ranks(const std::vector<std::string>& tokens,
                                                         const std::string& origin) {
  Ranks ranks;
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    if (!ranks.emplace(tokens[rank], static_cast<int32_t>(rank)).second) {
      throw Error(ExitCode::data,
                  fmt::format("{}: ranks {} and {} are the same token", origin, ranks.at(tokens[rank]), rank));
    }
  }
  std::vector<std::pair<int32_t, int32_t>> merges;
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const std::string_view token = tokens[rank];
    if (token.size() == 1) continue;
    const std::vector<size_t> ends = merge_below(ranks, token, static_cast<int32_t>(rank));
    const int32_t left = rank_of(ranks, token.substr(0, ends[0])), right = rank_of(ranks, token.substr(ends[0]));
    if (ends.size() == 2 && left != INT32_MAX && right != INT32_MAX) {
      merges.emplace_back(left, right);
    } else if (two_tokens_make(ranks, token)) {
      throw Error(ExitCode::data,
                  fmt::format("{}: the token of rank {} needs tokens of higher ranks: this is not the order "
                              "of a byte-pair vocabulary",
                              origin, rank));
    }
  }
  return merges;
}

BpeModel parse_tiktoken(std::string_view text, const std::string& origin) {
  BpeModel model;
  model.tokens = read_tiktoken_ranks(text, origin);
  const KnownVocabulary* known = known_vocabulary(model.tokens.size());
  if (!known) {
    throw Error(ExitCode::data,
                fmt::format("{}: {} ranks; how text is split is known only for GPT-2's 50256 and the 100256 of "
                            "cl100k_base: use the tokenizer.json of this vocabulary",
                            origin, model.tokens.size()));
  }
  model.merges = merges_of_ranks(model.tokens, origin);
  model.split = known->split;
  model.ignore_merges = true;
  for (const SpecialToken& special : known->special_tokens) {
    // cl100k_base has ids without a token.
    for (auto id = static_cast<int32_t>(model.tokens.size()); id < special.id; ++id)
      add_special(model, fmt::format("<|reserved_{}|>", id));
    add_special(model, special.text);
  }
  return model;
}

}  // namespace gpt::tokenizer
