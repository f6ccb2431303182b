#include "sentence_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "token_types.h"

namespace gpt::exchange {
namespace {

using nlohmann::json;

constexpr int kBytes = 256;

std::string byte_token(int byte) { return fmt::format("<0x{:02X}>", byte); }

json steps_of(const json& part, const char* list) {
  if (part.is_null()) return json::array();
  return part.is_object() && part.contains(list) ? part[list] : json::array({part});
}

// Where a space is put that the text does not have.
enum class AddedSpace { none, at_every_beginning, at_the_first_beginning };

// Nothing: something else changes or splits the text.
std::optional<AddedSpace> added_space(const json& file) {
  static const json kSpaces = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}},
                    kPrepend = {{"type", "Prepend"}, {"prepend", kSpaceMark}};
  AddedSpace added = AddedSpace::none;
  bool marks_spaces = false;
  for (const json& step : steps_of(file.value("normalizer", json()), "normalizers")) {
    if (step == kPrepend && !marks_spaces)
      added = AddedSpace::at_every_beginning;
    else if (step == kSpaces)
      marks_spaces = true;
    else
      return std::nullopt;
  }
  for (const json& step : steps_of(file.value("pre_tokenizer", json()), "pretokenizers")) {
    const bool is_split = step.value("type", "") == "Split" && step.value("pattern", json()) == kSpaces["pattern"];
    if (is_split && marks_spaces) continue;  // there are none any more
    if (step.value("type", "") != "Metaspace" || marks_spaces || step.value("replacement", "") != kSpaceMark ||
        step.value("split", true))
      return std::nullopt;
    marks_spaces = true;
    const std::string scheme = step.value("prepend_scheme", "always");
    if (scheme == "first") added = AddedSpace::at_the_first_beginning;
    if (scheme == "always") added = AddedSpace::at_every_beginning;
  }
  return marks_spaces ? std::optional(added) : std::nullopt;
}

std::pair<std::string, std::string> parts_of(const json& merge) {
  if (merge.is_array()) return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  const auto text = merge.get<std::string>();
  const size_t space = text.find(' ');
  return {text.substr(0, space), text.substr(space + 1)};
}

// How many merges there are for each piece that two others make.
class Merges {
 public:
  explicit Merges(const json& list) {
    for (const json& merge : list) {
      const auto [left, right] = parts_of(merge);
      Piece& piece = pieces_.try_emplace(left + right, Piece{made_, 0, made_}).first->second;
      is_in_order_ = is_in_order_ && (piece.count == 0 || piece.last + 1 == made_);
      ++piece.count, piece.last = made_++;
    }
  }

  // All merges of a piece follow each other, so that one number can stand for them.
  bool is_in_order() const { return is_in_order_; }
  size_t count_of(const std::string& text) const {
    const auto piece = pieces_.find(text);
    return piece == pieces_.end() ? 0 : piece->second.count;
  }
  // The later, the lower; of a piece that merges do not make, below all.
  float score(const std::string& text) const {
    const auto piece = pieces_.find(text);
    return -static_cast<float>(piece == pieces_.end() ? made_ : piece->second.first);
  }

 private:
  struct Piece {
    size_t first, count, last;
  };
  std::unordered_map<std::string, Piece> pieces_;
  size_t made_ = 0;
  bool is_in_order_ = true;
};

// In how many ways a piece is two others.
size_t ways_to_make(std::string_view text, const std::unordered_map<std::string_view, int32_t>& ids) {
  size_t ways = 0;
  for (size_t cut = 1; cut < text.size(); ++cut)
    ways += ids.contains(text.substr(0, cut)) && ids.contains(text.substr(cut)) ? 1 : 0;
  return ways;
}

// llama.cpp joins any two pieces that make a third one.
void require_all_merges(const json& vocabulary, const Merges& merges, const std::string& origin) {
  if (!merges.is_in_order())
    refuse_tokenizer(origin, "its merges of one piece do not follow each other, and a score stands for them there");
  std::unordered_map<std::string_view, int32_t> ids;
  for (const auto& [text, id] : vocabulary.items()) ids.emplace(text, id.get<int32_t>());
  for (const auto& [text, id] : ids)
    if (ways_to_make(text, ids) != merges.count_of(std::string(text)))
      refuse_tokenizer(origin, fmt::format("not every two pieces that make '{}' are a merge", printable_line(text)));
}

void add_added_tokens(const json& file, const Merges& merges, const std::string& origin, SentencePieces& result) {
  for (const json& token : file.value("added_tokens", json::array())) {
    const auto& text = token["content"].get_ref<const std::string&>();
    require_found_anywhere(token, origin);
    const auto id = token["id"].get<size_t>();
    // One that spells spaces is made by merges, for no text has it.
    if (text.find(kSpaceMark) != std::string::npos && merges.count_of(text) > 0) continue;
    result.tokens[id] = text;
    result.types[id] = token.value("special", false) ? kControl : kUserDefined;
  }
}

}  // namespace

bool has_sentence_pieces(const json& file) {
  if (!file.is_object() || !file.contains("model")) return false;
  const json& model = file["model"];
  if (model.value("type", "BPE") != "BPE" || !model.value("byte_fallback", false) ||
      model.value("ignore_merges", false))
    return false;
  for (int byte = 0; byte < kBytes; ++byte)
    if (!model["vocab"].contains(byte_token(byte))) return false;
  return added_space(file).has_value();
}

SentencePieces sentence_pieces(const json& file, int64_t size, const std::string& origin) {
  const json& model = file["model"];
  const Merges merges(model["merges"]);
  require_all_merges(model["vocab"], merges, origin);
  const auto count = static_cast<size_t>(size);
  const AddedSpace added = *added_space(file);
  SentencePieces result{.tokens = std::vector<std::string>(count),
                        .types = std::vector<int32_t>(count, kNormal),
                        .scores = std::vector<float>(count),
                        .adds_space = added != AddedSpace::none};
  for (const auto& [text, id] : model["vocab"].items()) {
    result.tokens[id.get<size_t>()] = text;
    result.scores[id.get<size_t>()] = merges.score(text);
  }
  for (int byte = 0; byte < kBytes; ++byte) result.types[model["vocab"][byte_token(byte)].get<size_t>()] = kByte;
  add_added_tokens(file, merges, origin, result);
  const json unknown = model.value("unk_token", json());
  if (unknown.is_string() && model["vocab"].contains(unknown.get<std::string>()))
    result.types[model["vocab"][unknown.get<std::string>()].get<size_t>()] = kUnknown;
  if (added == AddedSpace::at_the_first_beginning)
    log::warn(
        fmt::format("{}: llama.cpp puts a space before what follows a special token within a text, too, which gives "
                    "other ids there",
                    origin));
  return result;
}

}  // namespace gpt::exchange
