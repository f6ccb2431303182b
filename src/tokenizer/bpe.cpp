#include "gpt/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "bpe_merges.h"
#include "gpt/core/error.h"
#include "gpt/tokenizer/bpe_files.h"
#include "gpt/tokenizer/text_error.h"
#include "piece_joints.h"
#include "piece_memo.h"
#include "piece_windows.h"

namespace gpt::tokenizer {
namespace {

using TokenIds = std::unordered_map<std::string_view, int32_t>;

// Bytes as an error message shows them, in one line.
std::string bytes_in_quotes(std::string_view bytes) {
  std::string text = "'";
  for (const char c : bytes)
    text += c >= ' ' && c <= '~' ? std::string(1, c) : fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
  return text + "'";
}

// plan::Checks the special tokens and returns which ids are theirs.
std::vector<bool> special_ids(const BpeModel& model, const std::string& origin) {
  std::vector<bool> special(model.tokens.size());
  std::unordered_set<std::string_view> texts;
  for (const SpecialToken& token : model.special_tokens) {
    const auto refuse = [&](const std::string& why) {
      throw Error(ExitCode::data,
                  fmt::format("{}: special token {} (id {}) {}", origin, bytes_in_quotes(token.text), token.id, why));
    };
    if (token.text.empty()) refuse("is empty");
    if (token.id < 0 || token.id >= model.tokens.size())
      refuse(fmt::format("is outside the vocabulary of {} tokens", model.tokens.size()));
    if (model.tokens[token.id] != token.text)
      refuse(fmt::format("is {} in the vocabulary", bytes_in_quotes(model.tokens[token.id])));
    if (!texts.insert(token.text).second) refuse("is listed twice");
    special[token.id] = true;
  }
  return special;
}

// Ids without bytes are gaps in the numbering. A special token may have the bytes of an ordinary one, which then takes
// precedence.
TokenIds token_ids(const BpeModel& model, const std::vector<bool>& special, const std::string& origin) {
  TokenIds ids;
  ids.reserve(model.tokens.size());
  for (const bool specials : {false, true}) {
    for (size_t id = 0; id < model.tokens.size(); ++id) {
      if (special[id] != specials || model.tokens[id].empty()) continue;
      const auto [entry, added] = ids.try_emplace(model.tokens[id], static_cast<int32_t>(id));
      if (added || specials) continue;
      throw Error(ExitCode::data, fmt::format("{}: ids {} and {} are both {}", origin, entry->second, id,
                                              bytes_in_quotes(model.tokens[id])));
    }
  }
  return ids;
}

constexpr int32_t kNoToken = -1;

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Vocabularies of others may lack bytes that their texts never had, such as control characters.
std::array<int32_t, 256> ids_of_bytes(const TokenIds& ids) {
  std::array<int32_t, 256> result;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const auto found = ids.find(std::string_view(&c, 1));
    result[byte] = found == ids.end() ? kNoToken : found->second;
  }
  return result;
}

BpeMerges merge_rules(const BpeModel& model, const TokenIds& ids, const std::string& origin) {
  if (std::max(model.tokens.size(), model.merges.size()) > BpeModel::kMostTokens) {
    throw Error(ExitCode::data, fmt::format("{}: {} tokens and {} merges; at most {} of each are supported", origin,
                                            model.tokens.size(), model.merges.size(), BpeModel::kMostTokens));
  }
  BpeMerges rules(model.merges.size());
  const auto known = [&](int32_t id) { return id >= 0 && id < model.tokens.size() && !model.tokens[id].empty(); };
  std::string product;
  for (size_t rank = 0; rank < model.merges.size(); ++rank) {
    const auto [left, right] = model.merges[rank];
    if (!known(left) || !known(right)) {
      throw Error(ExitCode::data,
                  fmt::format("{}: merge {} joins ids {} and {}; the vocabulary of {} tokens lacks id {}", origin, rank,
                              left, right, model.tokens.size(), known(left) ? right : left));
    }
    product.assign(model.tokens[left]).append(model.tokens[right]);
    const auto found = ids.find(product);
    if (found == ids.end()) {
      throw Error(ExitCode::data, fmt::format("{}: merge {} joins {} and {}, but {} is not a token", origin, rank,
                                              bytes_in_quotes(model.tokens[left]), bytes_in_quotes(model.tokens[right]),
                                              bytes_in_quotes(product)));
    }
    rules.add(left, right, found->second);
  }
  return rules;
}

}  // namespace

struct BpeTokenizer::Impl {
  BpeModel model;
  std::array<int32_t, 256> byte_ids;
  BpeMerges merges;
  PieceJoints joints{{}};
  TokenIds whole_pieces;  // with ignore_merges: the ordinary tokens, by their bytes
  uint32_t owner = PieceMemo::new_owner();

  Impl(BpeModel given, const std::string& origin) : model(std::move(given)) {
    joints = PieceJoints(model.tokens);
    const std::vector<bool> special = special_ids(model, origin);
    TokenIds ids = token_ids(model, special, origin);
    byte_ids = ids_of_bytes(ids);
    merges = merge_rules(model, ids, origin);
    if (!model.ignore_merges) return;
    std::erase_if(ids, [&](const auto& entry) { return special[entry.second]; });
    whole_pieces = std::move(ids);
  }

  // `offset`: where the piece begins in the text, for a message.
  void encode_piece(std::string_view piece, size_t offset, std::vector<int32_t>& ids) const {
    if (!model.ignore_merges || !append_whole(piece, ids)) merge(piece, offset, ids);
  }

  bool append_whole(std::string_view piece, std::vector<int32_t>& ids) const {
    const auto found = whole_pieces.find(piece);
    if (found == whole_pieces.end()) return false;
    ids.push_back(found->second);
    return true;
  }

  void merge(std::string_view piece, size_t offset, std::vector<int32_t>& ids) const {
    while (!piece.empty()) {
      const std::string_view part = piece.substr(0, kLongestPiece);
      const size_t first = ids.size();
      ids.resize(first + part.size());
      for (size_t i = 0; i < part.size(); ++i) ids.data()[first + i] = id_of_byte(part.data()[i], offset + i);
      merges.apply(ids, first);
      piece.remove_prefix(part.size());
      offset += part.size();
    }
  }

  // What encode_piece() appends, as far as it is known from the memo.
  void append(PieceMemo& memo, const PieceMemo::Key& key, std::string_view text, size_t begin, size_t end,
              std::vector<int32_t>& ids) const {
    const std::string_view piece = text.substr(begin, end - begin);
    const bool is_whole =
        PieceMemo::is_short(piece) || is_ascii(piece) || (model.ignore_merges && whole_pieces.contains(piece));
    if (!is_whole) return append_parts(memo, text, begin, end, ids);
    memo.append(key, piece, ids, [&] { encode_piece(piece, begin, ids); });
  }

  // perf: OPT-5. Long pieces hardly recur, but their parts between which nothing merges do.
  void append_parts(PieceMemo& memo, std::string_view text, size_t begin, size_t end, std::vector<int32_t>& ids) const {
    const std::string_view ahead = text.substr(0, end);
    std::array<int32_t, 64> gathered;
    size_t count = 0;
    while (begin < end) {
      const size_t border = joints.part_end(ahead, begin);
      PieceMemo::Key key = PieceMemo::key_of(text, begin, border - begin);
      key.high |= PieceMemo::kPart;
      const size_t known = memo.line_of(key).copy_ids(key, gathered.data() + count);
      count += known;
      if (known == 0 || count > gathered.size() - PieceMemo::kFewIds || border == end) {
        ids.insert(ids.end(), gathered.data(), gathered.data() + count);
        count = 0;
      }
      if (known == 0) {
        const std::string_view part = text.substr(begin, border - begin);
        memo.append(key, part, ids, [&] { merge(part, begin, ids); });
      }
      begin = border;
    }
  }

  int32_t id_of_byte(char c, size_t offset) const {
    const auto byte = static_cast<unsigned char>(c);
    if (byte_ids[byte] != kNoToken) return byte_ids[byte];
    throw TextError(offset, fmt::format("0x{:02X} has no token in this tokenizer", byte),
                    "take it out of the text, or use another tokenizer");
  }
};

BpeTokenizer::BpeTokenizer(BpeModel model, const std::string& origin)
    : impl_(std::make_unique<const Impl>(std::move(model), origin)) {}

BpeTokenizer::~BpeTokenizer() = default;

int64_t BpeTokenizer::vocab_size() const { return static_cast<int64_t>(impl_->model.tokens.size()); }

std::span<const SpecialToken> BpeTokenizer::special_tokens() const { return impl_->model.special_tokens; }

const BpeModel& BpeTokenizer::model() const { return impl_->model; }

std::string BpeTokenizer::to_json() const { return tokenizer_json(impl_->model); }

// perf: OPT-5. A piece is looked up some time after its line of the memo was asked for, so that it has arrived in the cache;
// and ids are gathered, because a vector that grows id by id costs more than all the rest.
void BpeTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  constexpr size_t kBatch = 512, kAhead = 32;
  PieceMemo& memo = PieceMemo::of_this_thread(impl_->owner);
  std::array<size_t, kBatch> ends;
  std::array<PieceMemo::Key, kAhead> keys;
  std::array<const PieceMemo::Line*, kAhead> lines;
  std::array<int32_t, kBatch * PieceMemo::kFewIds> gathered;
  for (size_t begin = 0; begin < text.size();) {
    const size_t count = piece_ends(impl_->model.split, text, begin, ends);
    size_t asked_to = begin;
    const auto ask = [&](size_t i) {
      const size_t end = ends.data()[i];
      const PieceMemo::Key key = PieceMemo::key_of(text, asked_to, end - asked_to);
      const PieceMemo::Line& line = memo.line_of(key);
      __builtin_prefetch(&line);
      keys.data()[i % kAhead] = key;
      lines.data()[i % kAhead] = &line;
      asked_to = end;
    };
    for (size_t i = 0; i < std::min(kAhead, count); ++i) ask(i);

    int32_t* next = gathered.data();
    for (size_t i = 0; i < count; ++i) {
      const PieceMemo::Key key = keys.data()[i % kAhead];
      const PieceMemo::Line& line = *lines.data()[i % kAhead];
      if (i + kAhead < count) ask(i + kAhead);
      if (const size_t known = line.copy_ids(key, next)) {
        next += known;
      } else {
        ids.insert(ids.end(), gathered.data(), next);
        next = gathered.data();
        const size_t moves = memo.moves();
        impl_->append(memo, key, text, begin, ends.data()[i], ids);
        if (memo.moves() != moves) {
          for (size_t place = 0; place < std::min(kAhead, count); ++place) lines[place] = &memo.line_of(keys[place]);
        }
      }
      begin = ends.data()[i];
    }
    ids.insert(ids.end(), gathered.data(), next);
  }
}

void BpeTokenizer::encode_piece(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.empty()) return;
  PieceMemo& memo = PieceMemo::of_this_thread(impl_->owner);
  impl_->append(memo, PieceMemo::key_of(piece, 0, piece.size()), piece, 0, piece.size(), ids);
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids) const {
  const std::vector<std::string>& tokens = impl_->model.tokens;
  std::string text;
  for (const int32_t id : ids) {
    if (id < 0 || id >= tokens.size()) {
      throw Error(ExitCode::data, fmt::format("token id {} is outside the vocabulary of {} tokens", id, tokens.size()));
    }
    text += tokens[id];
  }
  return text;
}

size_t BpeTokenizer::last_cut(std::string_view text) const { return last_piece_boundary(impl_->model.split, text); }

}  // namespace gpt::tokenizer
