#include "sentencepiece_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bpe_vocabulary.h"
#include "gpt/tokenizer/utf8.h"

namespace gpt::tokenizer {
namespace {

using nlohmann::ordered_json;

constexpr const char* kSpace = "\u2581";  // which stands for a space

// The fields of a message, one after another.
class Message {
 public:
  Message(std::string_view bytes, const std::string& origin) : rest_(bytes), origin_(&origin) {}

  bool next() {
    if (rest_.empty()) return false;
    const uint64_t key = varint();
    number_ = key >> 3, value_ = 0, bytes_ = {};
    switch (key & 7) {
      case 0: value_ = varint(); break;
      case 1: take(8); break;
      case 2: bytes_ = take(varint()); break;
      case 5: bytes_ = take(4); break;
      default: damaged();
    }
    return true;
  }

  uint64_t number() const { return number_; }
  uint64_t value() const { return value_; }
  bool flag() const { return value_ != 0; }
  std::string_view bytes() const { return bytes_; }
  Message inside() const { return {bytes_, *origin_}; }

  float number32() const {
    if (bytes_.size() != 4) damaged();
    uint32_t bits = 0;
    for (size_t i = 0; i < 4; ++i) bits |= static_cast<uint32_t>(static_cast<uint8_t>(bytes_[i])) << (8 * i);
    return std::bit_cast<float>(bits);
  }

 private:
  [[noreturn]] void damaged() const { refuse_tokenizer(*origin_, "it is damaged, or no model of SentencePiece"); }

  std::string_view take(uint64_t size) {
    if (size > rest_.size()) damaged();
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  uint64_t varint() {
    constexpr int kBits = 64;
    uint64_t value = 0;
    for (int shift = 0; shift < kBits; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    damaged();
  }

  std::string_view rest_;
  const std::string* origin_;
  uint64_t number_ = 0, value_ = 0;
  std::string_view bytes_;
};

enum class Kind { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct Piece {
  std::string text;
  float score = 0;
  Kind kind = Kind::normal;
};

struct Model {
  std::vector<Piece> pieces;
  uint64_t type = 1;  // 1 Unigram, 2 BPE, 3 words, 4 characters
  bool has_bytes = false, has_space_behind_words = false;
  bool has_normalization = false, adds_space = true, removes_spaces = true, escapes_spaces = true;
};

Piece read_piece(Message message, const std::string& origin) {
  Piece piece;
  while (message.next()) {
    if (message.number() == 1) piece.text = message.bytes();
    if (message.number() == 2) piece.score = message.number32();
    if (message.number() == 3) piece.kind = static_cast<Kind>(message.value());
  }
  if (piece.text.empty() || !utf8::is_valid(piece.text)) refuse_tokenizer(origin, "a piece is empty or not UTF-8");
  return piece;
}

void read_training(Message message, Model& model) {
  while (message.next()) {
    if (message.number() == 3) model.type = message.value();
    if (message.number() == 24) model.has_space_behind_words = message.flag();
    if (message.number() == 35) model.has_bytes = message.flag();
  }
}

void read_normalization(Message message, Model& model) {
  while (message.next()) {
    if (message.number() == 2 && !message.bytes().empty()) model.has_normalization = true;
    if (message.number() == 3) model.adds_space = message.flag();
    if (message.number() == 4) model.removes_spaces = message.flag();
    if (message.number() == 5) model.escapes_spaces = message.flag();
  }
}

Model read_model(std::string_view file, const std::string& origin) {
  Model model;
  for (Message message(file, origin); message.next();) {
    if (message.number() == 1) model.pieces.push_back(read_piece(message.inside(), origin));
    if (message.number() == 2) read_training(message.inside(), model);
    if (message.number() == 3) read_normalization(message.inside(), model);
  }
  if (model.pieces.empty()) refuse_tokenizer(origin, "it has no pieces");
  if (model.type != 2)
    refuse_tokenizer(origin, fmt::format("its model_type is {}; this program reads BPE", model.type == 1   ? "UNIGRAM"
                                                                                         : model.type == 3 ? "WORD"
                                                                                                           : "CHAR"));
  if (model.has_normalization) refuse_tokenizer(origin, "it normalizes text (normalization_rule_name is not identity)");
  if (model.removes_spaces) refuse_tokenizer(origin, "it removes spaces (remove_extra_whitespaces)");
  if (!model.escapes_spaces || model.has_space_behind_words)
    refuse_tokenizer(origin,
                     "spaces are other than U+2581 before words (escape_whitespaces, treat_whitespace_as_suffix)");
  return model;
}

using Ids = std::unordered_map<std::string_view, size_t>;

Ids ids_of(const Model& model, const std::string& origin) {
  Ids ids;
  for (size_t id = 0; id < model.pieces.size(); ++id)
    if (!ids.emplace(model.pieces[id].text, id).second)
      refuse_tokenizer(origin, fmt::format("pieces {} and {} are the same", ids.at(model.pieces[id].text), id));
  return ids;
}

// SentencePiece joins the neighbours that make the piece of the highest score, so every division of a piece is a merge, and those of one
// piece stand together.
ordered_json merges_of(const Model& model, const Ids& ids) {
  std::vector<size_t> order;
  for (size_t id = 0; id < model.pieces.size(); ++id)
    if (model.pieces[id].kind == Kind::normal) order.push_back(id);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return model.pieces[a].score > model.pieces[b].score; });
  const auto is_normal = [&](std::string_view text) {
    const auto found = ids.find(text);
    return found != ids.end() && model.pieces[found->second].kind == Kind::normal;
  };
  ordered_json merges = ordered_json::array();
  for (const size_t id : order) {
    const std::string_view text = model.pieces[id].text;
    for (size_t at = utf8::decode(text, 0).bytes; at < text.size(); at += utf8::decode(text, at).bytes)
      if (is_normal(text.substr(0, at)) && is_normal(text.substr(at)))
        merges.push_back({text.substr(0, at), text.substr(at)});
  }
  return merges;
}

// Pieces that the user has defined are found in every text and are never joined with others. Where a space is put before a text they are
// split off, since it is put before each part between added tokens.
bool splits_defined(const Model& model) { return model.adds_space; }

// Pieces of control, as <s>, are found in prompts alone.
ordered_json added_tokens_of(const Model& model) {
  ordered_json added = ordered_json::array();
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    const bool is_defined = piece.kind == Kind::user_defined && !splits_defined(model);
    if (piece.kind != Kind::unknown && piece.kind != Kind::control && !is_defined) continue;
    added.push_back({{"id", id},
                     {"content", piece.text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", is_defined},  // they may have U+2581
                     {"special", !is_defined}});
  }
  return added;
}

// The longest comes first, as the first alternative counts.
std::string pattern_of_defined(const Model& model) {
  constexpr std::string_view kMeaning = "\\.+*?()[]{}|^$";
  std::vector<std::string_view> defined;
  for (const Piece& piece : model.pieces)
    if (piece.kind == Kind::user_defined && splits_defined(model)) defined.push_back(piece.text);
  std::stable_sort(defined.begin(), defined.end(), [](auto a, auto b) { return a.size() > b.size(); });
  std::string pattern;
  for (const std::string_view text : defined) {
    if (!pattern.empty()) pattern += '|';
    for (const char byte : text) {
      if (kMeaning.find(byte) != std::string_view::npos) pattern += '\\';
      pattern += byte;
    }
  }
  return pattern;
}

ordered_json pre_tokenizer_of(const std::string& pattern) {
  if (pattern.empty()) return nullptr;
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

ordered_json normalizer_of(const Model& model) {
  ordered_json steps = ordered_json::array();
  if (model.adds_space) steps.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
  steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}});
  return {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
}

ordered_json decoder_of(const Model& model) {
  ordered_json steps = ordered_json::array();
  steps.push_back({{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}});
  if (model.has_bytes) steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  if (model.adds_space) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

}  // namespace

std::string json_of_sentencepiece_model(std::string_view file, const std::string& origin) {
  const Model model = read_model(file, origin);
  const Ids ids = ids_of(model, origin);
  const std::string defined = pattern_of_defined(model);
  ordered_json vocabulary = ordered_json::object(), unknown = nullptr;
  auto& entries = vocabulary.get_ref<ordered_json::object_t&>();  // its own insertion searches all members
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    entries.emplace_back(model.pieces[id].text, id);
    if (model.pieces[id].kind == Kind::unknown) unknown = model.pieces[id].text;
  }
  const ordered_json json = {{"version", "1.0"},
                             {"truncation", nullptr},
                             {"padding", nullptr},
                             {"added_tokens", added_tokens_of(model)},
                             {"normalizer", normalizer_of(model)},
                             {"pre_tokenizer", pre_tokenizer_of(defined)},
                             {"post_processor", nullptr},
                             {"decoder", decoder_of(model)},
                             {"model",
                              {{"type", "BPE"},
                               {"dropout", nullptr},
                               {"unk_token", std::move(unknown)},
                               {"continuing_subword_prefix", nullptr},
                               {"end_of_word_suffix", nullptr},
                               {"fuse_unk", true},
                               {"byte_fallback", model.has_bytes},
                               {"ignore_merges", !defined.empty()},
                               {"vocab", std::move(vocabulary)},
                               {"merges", merges_of(model, ids)}}}};
  return json.dump();
}

}  // namespace gpt::tokenizer
