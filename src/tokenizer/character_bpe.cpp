#include "character_bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bpe_vocabulary.h"
#include "gpt/core/error.h"
#include "gpt/core/utf8.h"
#include "gpt/tokenizer/bpe.h"
#include "gpt/tokenizer/text_error.h"
#include "gpt/tokenizer/utf8.h"
#include "piece_memo.h"

namespace gpt::tokenizer {
namespace {

uint64_t pair_of_characters(char32_t left, char32_t right) { return uint64_t{left} << 32 | right; }

std::optional<unsigned char> byte_spelled(std::string_view token) {
  for (int byte = 0; token.size() == 6 && byte < 256; ++byte) {
    if (token == fmt::format("<0x{:02X}>", byte)) return static_cast<unsigned char>(byte);
  }
  return std::nullopt;
}

}  // namespace

CharacterBpe::CharacterBpe(const BpeModel& model, CharacterBpeOptions options, const std::string& origin)
    : options_(std::move(options)), merges_(model.merges.size()), owner_(PieceMemo::new_owner()) {
  read_tokens(model);
  read_merges(model, origin);
}

void CharacterBpe::read_tokens(const BpeModel& model) {
  ascii_ids_.fill(kNoToken);
  byte_ids_.fill(kNoToken);
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    const std::string& token = model.tokens[id];
    if (!options_.in_vocabulary[id] || token.empty()) continue;
    const auto number = static_cast<int32_t>(id);
    if (model.ignore_merges) whole_pieces_.emplace(token, number);
    if (const auto byte = byte_spelled(token)) byte_ids_[*byte] = number;
    const utf8::Scan scan = utf8::scan(token, 0);
    if (scan.bytes != token.size()) continue;
    if (scan.value < ascii_ids_.size()) {
      ascii_ids_[scan.value] = number;
    } else {
      other_ids_.emplace(scan.value, number);
    }
  }
  // In a text their names are letters; where they mean the tokens, they were found before this.
  for (const SpecialToken& special : model.special_tokens) whole_pieces_.erase(special.text);
}

void CharacterBpe::read_merges(const BpeModel& model, const std::string& origin) {
  std::unordered_map<std::string_view, int32_t> ids;
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    if (options_.in_vocabulary[id]) ids.emplace(model.tokens[id], static_cast<int32_t>(id));
  }
  const auto stands_for_unknown = [&](int32_t id) {
    return id == options_.unknown || (options_.byte_fallback && byte_spelled(model.tokens[id]));
  };
  for (const auto& [left, right] : model.merges) {
    const std::string product = model.tokens[left] + model.tokens[right];
    const auto found = ids.find(product);
    if (found == ids.end()) {
      throw Error(ExitCode::data, fmt::format("{}: a merge joins {} and {}, but {} is not a token", origin,
                                              shown(model.tokens[left]), shown(model.tokens[right]), shown(product)));
    }
    merges_.add(left, right, found->second);
    note_joined(product);
    merges_unknown_ = merges_unknown_ || stands_for_unknown(left) || stands_for_unknown(right);
  }
}

void CharacterBpe::note_joined(std::string_view token) {
  utf8::Scan left = utf8::scan(token, 0);
  for (size_t at = left.bytes; at < token.size();) {
    const utf8::Scan right = utf8::scan(token, at);
    if (left.value < 128 && right.value < 128) {
      ascii_pairs_[left.value * 128 + right.value] = true;
    } else {
      other_pairs_.insert(pair_of_characters(left.value, right.value));
    }
    left = right;
    at += right.bytes;
  }
}

int32_t CharacterBpe::id_of(char32_t character) const {
  if (character < ascii_ids_.size()) return ascii_ids_[character];
  const auto found = other_ids_.find(character);
  return found == other_ids_.end() ? kNoToken : found->second;
}

bool CharacterBpe::joins(char32_t left, char32_t right) const {
  if (left < 128 && right < 128 && ascii_pairs_[left * 128 + right]) return true;
  if ((left >= 128 || right >= 128) && other_pairs_.count(pair_of_characters(left, right)) != 0) return true;
  // Unknown ones may become one token.
  const bool left_is_unknown = id_of(left) == kNoToken, right_is_unknown = id_of(right) == kNoToken;
  return merges_unknown_ ? left_is_unknown || right_is_unknown : left_is_unknown && right_is_unknown;
}

void CharacterBpe::encode_piece(std::string_view piece, std::vector<int32_t>& ids) const {
  if (!whole_pieces_.empty()) {
    const auto found = whole_pieces_.find(std::string(piece));
    if (found != whole_pieces_.end()) return ids.push_back(found->second);
  }
  PieceMemo& memo = PieceMemo::of_this_thread(owner_);
  const auto encode = [&](size_t begin, size_t end) {
    const std::string_view segment = piece.substr(begin, end - begin);
    memo.append(PieceMemo::key_of(segment, 0, segment.size()), segment, ids,
                [&] { encode_segment(segment, begin, ids); });
  };
  size_t begin = 0;
  utf8::Scan left = utf8::scan(piece, 0);
  for (size_t at = left.bytes; at < piece.size();) {
    const utf8::Scan right = utf8::scan(piece, at);
    const bool is_too_long = at - begin >= BpeTokenizer::kLongestPiece;
    if (is_too_long || !joins(left.value, right.value)) {
      encode(begin, at);
      begin = at;
    }
    left = right;
    at += right.bytes;
  }
  encode(begin, piece.size());
}

void CharacterBpe::encode_segment(std::string_view segment, size_t offset, std::vector<int32_t>& ids) const {
  const size_t first = ids.size();
  std::optional<int32_t> waiting;  // an unknown token that the next character may be fused into
  const auto flush = [&] {
    if (const auto id = std::exchange(waiting, std::nullopt)) ids.push_back(*id);
  };
  for (size_t at = 0; at < segment.size();) {
    const utf8::Scan scan = utf8::scan(segment, at);
    const int32_t id = id_of(scan.value);
    if (id == kNoToken) {
      append_unknown(segment.substr(at, scan.bytes), offset + at, waiting, ids);
    } else {
      flush();
      ids.push_back(id);
    }
    at += scan.bytes;
  }
  flush();
  merges_.apply(ids, first);
}

void CharacterBpe::append_unknown(std::string_view character, size_t offset, std::optional<int32_t>& waiting,
                                  std::vector<int32_t>& ids) const {
  const auto byte_id = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  const bool has_bytes = options_.byte_fallback && std::all_of(character.begin(), character.end(),
                                                               [&](char byte) { return byte_id(byte) != kNoToken; });
  if (has_bytes) {
    for (const char byte : character) ids.push_back(byte_id(byte));
    return;
  }
  if (!options_.unknown) {
    throw TextError(offset,
                    fmt::format("{} has no token in this tokenizer", utf8::describe(utf8::scan(character, 0).value)),
                    "take it out of the text, or use another tokenizer");
  }
  if (waiting && !options_.fuse_unknown) ids.push_back(*waiting);
  waiting = options_.unknown;
}

}  // namespace gpt::tokenizer
