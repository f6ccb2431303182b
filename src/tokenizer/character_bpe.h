// Byte-pair encoding over characters, as SentencePiece has it: a character without a token becomes the tokens <0x00> to
// <0xFF> of its bytes where the vocabulary has those, else the unknown token.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "bpe_merges.h"
#include "gpt/tokenizer/bpe_model.h"

namespace gpt::tokenizer {

struct CharacterBpeOptions {
  std::vector<bool> in_vocabulary;      // by id: not for tokens that are only added to the model
  std::optional<int32_t> unknown = {};  // the id of the unknown token
  bool fuse_unknown = false;            // unknown characters in a row are one token
  bool byte_fallback = false;
};

class CharacterBpe {
 public:
  // The tokens of the model are UTF-8. Throws gpt::Error(data), beginning with `origin`, for merges without a product.
  CharacterBpe(const BpeModel& model, CharacterBpeOptions options, const std::string& origin);

  // Appends the ids of a piece of valid UTF-8, which is not to be split. Throws TextError, with an offset in the piece,
  // for a character that has neither a token nor anything in its place.
  void encode_piece(std::string_view piece, std::vector<int32_t>& ids) const;

 private:
  static constexpr int32_t kNoToken = -1;

  void read_tokens(const BpeModel& model);
  void read_merges(const BpeModel& model, const std::string& origin);
  void note_joined(std::string_view token);
  int32_t id_of(char32_t character) const;
  bool joins(char32_t left, char32_t right) const;
  void encode_segment(std::string_view segment, size_t offset, std::vector<int32_t>& ids) const;
  void append_unknown(std::string_view character, size_t offset, std::optional<int32_t>& waiting,
                      std::vector<int32_t>& ids) const;

  CharacterBpeOptions options_;
  BpeMerges merges_;
  std::unordered_map<std::string, int32_t> whole_pieces_;  // with ignore_merges
  std::array<int32_t, 128> ascii_ids_{};
  std::unordered_map<char32_t, int32_t> other_ids_;
  std::array<int32_t, 256> byte_ids_{};

  // perf: no merge joins two characters that stand side by side in no token, so a text is cut between them: short parts
  // are merged faster, and are remembered.
  bool merges_unknown_ = false;  // what stands for unknown characters is merged as well
  std::vector<bool> ascii_pairs_ = std::vector<bool>(128 * 128);
  std::unordered_set<uint64_t> other_pairs_;
  uint32_t owner_;
};

}  // namespace gpt::tokenizer
