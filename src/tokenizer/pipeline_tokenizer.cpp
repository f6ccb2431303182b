#include "pipeline_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/tokenizer/byte_alphabet.h"
#include "gpt/tokenizer/text_error.h"
#include "gpt/tokenizer/utf8.h"

namespace gpt::tokenizer {
namespace {

AddedTokens chosen(const std::vector<AddedToken>& tokens, bool normalized, const std::vector<TextChange>& changes) {
  std::vector<AddedToken> found;
  for (AddedToken token : tokens) {
    if (token.normalized != normalized) continue;
    for (const TextChange& change : changes) change(token.text);
    if (!token.text.empty()) found.push_back(std::move(token));
  }
  return AddedTokens(std::move(found));
}

void require_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
    } else {
      at += utf8::decode(text, at).bytes;
    }
  }
}

// Whether a character that neither changes nor joins one before it begins at `at`, and such a one ends there.
bool is_between_ascii(std::string_view text, size_t at) {
  const auto is_ascii = [&](size_t i) { return static_cast<unsigned char>(text[i]) < 0x80; };
  return is_ascii(at - 1) && is_ascii(at);
}

}  // namespace

PipelineTokenizer::PipelineTokenizer(TokenizerPipeline pipeline, std::string json, const std::string& origin)
    : pipeline_(std::move(pipeline)),
      json_(std::move(json)),
      in_text_(chosen(pipeline_.added_tokens, false, {})),
      in_changed_text_(chosen(pipeline_.added_tokens, true, pipeline_.changes)),
      tokens_(pipeline_.model.tokens) {
  bool all_special = true;
  for (const AddedToken& token : pipeline_.added_tokens) {
    if (token.special) special_tokens_.push_back({token.text, token.id});
    if (token.normalized) change(tokens_[token.id]);
    all_special = all_special && token.special;
    const bool reaches_beyond = token.single_word || token.left_strip || token.right_strip;
    if (!token.special && reaches_beyond) pipeline_.may_be_cut = false;
  }
  if (pipeline_.is_byte_level) {
    bytes_ = std::make_unique<const BpeTokenizer>(std::move(pipeline_.model), origin);
  } else {
    characters_ = std::make_unique<const CharacterBpe>(pipeline_.model, pipeline_.characters, origin);
  }
  reads_bytes_ = bytes_ && all_special && pipeline_.changes.empty() && pipeline_.splitters.empty();
}

void PipelineTokenizer::change(std::string& text) const {
  for (const TextChange& change : pipeline_.changes) change(text);
}

void PipelineTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  if (reads_bytes_) return split_from(0, {text, true}, ids);
  encode_parts(text, /*specials=*/false, ids);
}

std::vector<int32_t> PipelineTokenizer::encode_with_specials(std::string_view text) const {
  std::vector<int32_t> ids;
  encode_parts(text, /*specials=*/true, ids);
  return ids;
}

void PipelineTokenizer::encode_parts(std::string_view text, bool specials, std::vector<int32_t>& ids) const {
  if (!reads_bytes_) require_utf8(text);
  in_text_.split(text, specials, [&](std::string_view part, const AddedToken* token) {
    if (token) return ids.push_back(token->id);
    const auto offset = static_cast<size_t>(part.data() - text.data());
    try {
      encode_part(part, specials, offset == 0, ids);
    } catch (const TextError& error) {
      throw TextError(offset + std::min(error.offset(), part.size()), error.why(), error.remedy());
    }
  });
}

void PipelineTokenizer::encode_part(std::string_view part, bool specials, bool starts_text,
                                    std::vector<int32_t>& ids) const {
  std::string changed;
  if (!pipeline_.changes.empty()) {
    change(changed.assign(part));
    part = changed;
  }
  in_changed_text_.split(part, specials, [&](std::string_view rest, const AddedToken* token) {
    if (token) return ids.push_back(token->id);
    split_from(0, {rest, starts_text && rest.data() == part.data()}, ids);
  });
}

void PipelineTokenizer::split_from(size_t step, TextPiece piece, std::vector<int32_t>& ids) const {
  if (step == pipeline_.splitters.size()) return encode_piece(piece.text, ids);
  pipeline_.splitters[step](piece, [&](TextPiece part) { split_from(step + 1, part, ids); });
}

void PipelineTokenizer::encode_piece(std::string_view piece, std::vector<int32_t>& ids) const {
  if (characters_) return characters_->encode_piece(piece, ids);
  if (pipeline_.splits_as_model) return bytes_->encode(piece, ids);
  if (!pipeline_.is_spelled) return bytes_->encode_piece(piece, ids);
  bytes_->encode_piece(byte_alphabet::bytes(piece).value(), ids);
}

const std::string& PipelineTokenizer::token_of(int32_t id) const {
  if (id >= 0 && id < std::ssize(tokens_)) return tokens_[id];
  throw Error(ExitCode::data, fmt::format("token id {} is outside the vocabulary of {} tokens", id, tokens_.size()));
}

std::string PipelineTokenizer::decode(std::span<const int32_t> ids) const {
  std::vector<std::string> tokens;
  for (const int32_t id : ids) tokens.push_back(token_of(id));
  return pipeline_.decoder.decode(std::move(tokens));
}

std::string PipelineTokenizer::piece(int32_t id, bool begins_text) const {
  return pipeline_.decoder.piece(token_of(id), begins_text);
}

size_t PipelineTokenizer::last_cut(std::string_view text) const {
  if (!pipeline_.may_be_cut || !pipeline_.only_unicode_forms) return 0;
  for (;;) {
    const size_t cut = bytes_->last_cut(text);
    if (cut == 0) return 0;
    const bool is_between = pipeline_.changes.empty() || is_between_ascii(text, cut);
    const size_t better = is_between ? start_of_token_across(text, cut) : cut;
    if (is_between && better == cut) return cut;
    text = text.substr(0, better);
  }
}

// The start of an added token, or of what may become one beyond the end of the text, that lies across `cut`; else `cut`.
size_t PipelineTokenizer::start_of_token_across(std::string_view text, size_t cut) const {
  if (reads_bytes_) return cut;
  for (const AddedToken& token : pipeline_.added_tokens) {
    for (size_t start = cut - std::min(cut, token.text.size() - 1); start < cut; ++start) {
      if (std::string_view(token.text).starts_with(text.substr(start, token.text.size()))) return start;
    }
  }
  return cut;
}

}  // namespace gpt::tokenizer
