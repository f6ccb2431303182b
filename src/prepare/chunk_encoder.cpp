#include "chunk_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gpt/chat/conversation_lines.h"
#include "gpt/core/error.h"
#include "gpt/core/seeds.h"
#include "gpt/data/token_file.h"
#include "gpt/jinja/template_error.h"
#include "gpt/tokenizer/text_error.h"
#include "gpt/tokenizer/utf8.h"
#include "separators.h"
#include "split_choice.h"

namespace gpt::prepare {
namespace {

template <class Id>
std::string packed(const std::vector<int32_t>& ids) {
  std::string bytes(ids.size() * sizeof(Id), '\0');
  char* to = bytes.data();
  for (const int32_t id : ids) {
    const auto narrow = static_cast<Id>(id);
    std::memcpy(to, &narrow, sizeof narrow);
    to += sizeof narrow;
  }
  return bytes;
}

}  // namespace

int64_t count_invalid_utf8(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080u;
  int64_t invalid = 0;
  for (size_t i = 0; i < text.size();) {
    uint64_t eight;
    if (i + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + i, sizeof eight);
      if ((eight & kHighBits) == 0) {
        i += sizeof eight;
        continue;
      }
    }
    const auto [kind, bytes, value] = utf8::scan(text, i);
    if (kind != utf8::Scan::whole) invalid += static_cast<int64_t>(bytes);
    i += bytes;
  }
  return invalid;
}

ChunkEncoder::ChunkEncoder(const tokenizer::Tokenizer& tokenizer, const PrepareOptions& options, bool conversations)
    : tokenizer_(tokenizer),
      options_(options),
      parse_special_tokens_(options.parse_special_tokens),
      prefix_(options.document_prefix),
      end_of_text_(tokenizer.end_of_text()),
      ends_(separators(kAutomaticSeparator, &tokenizer)),
      width_(data::width_for(tokenizer.vocab_size())) {
  if (parse_special_tokens_) {
    for (const tokenizer::SpecialToken& token : tokenizer.special_tokens()) parsed_names_.push_back(token.text);
    std::erase_if(ends_, [this](const std::string& end) {
      return std::find(parsed_names_.begin(), parsed_names_.end(), end) != parsed_names_.end();
    });
  }
  if (!conversations) return;
  const tokenizer::TextFormat format = tokenizer::text_format_of(options.chat_format, tokenizer);
  const auto markup = options.trust_markup ? chat::Markup::trusted : chat::Markup::text;
  chat::ChatTemplate chat = chat::choose_template(format, tokenizer, markup).chat;
  chat_template_ = chat.source();
  conversations_.emplace(std::move(chat), tokenizer, options.learn);
  token_bytes_ = tokenizer.text_bytes();
}

EncodedChunk ChunkEncoder::encode(const Chunk& chunk, DocumentReader& reader) const {
  EncodedChunk result;
  std::vector<int32_t> ids;
  size_t begin = 0;
  for (const DocumentPart& part : chunk.parts) {
    const std::string_view text = std::string_view(chunk.text).substr(begin, part.end - begin);
    try {
      conversations_ ? encode_conversation(text, part, result, ids) : encode_document(text, part, result, ids);
    } catch (const tokenizer::InvalidUtf8& error) {
      reader.refuse(chunk, begin + error.offset(), error.why_and_remedy());
      return {};
    } catch (const tokenizer::TextError& error) {
      const size_t offset = conversations_ ? 0 : error.offset();  // that of a conversation is in the template's text
      throw tokenizer::UnencodableText(
          fmt::format("{}: {}", reader.place(chunk, begin + offset), error.why_and_remedy()));
    } catch (const jinja::TemplateError& error) {
      reader.refuse(chunk, begin, error.what());
      return {};
    }
    begin = part.end;
  }
  result.ids = packed_checked(ids, chunk, reader);
  return result;
}

// Never wrapped: an id that its vocabulary does not have would become another one.
std::string ChunkEncoder::packed_checked(const std::vector<int32_t>& ids, const Chunk& chunk,
                                         const DocumentReader& reader) const {
  const int64_t vocabulary = tokenizer_.vocab_size();
  const auto wrong =
      std::find_if(ids.begin(), ids.end(), [vocabulary](int32_t id) { return id < 0 || id >= vocabulary; });
  if (wrong != ids.end()) {
    throw Error(ExitCode::data, fmt::format("{}: the tokenizer gave id {}, outside its vocabulary of {}",
                                            reader.place(chunk, 0), *wrong, vocabulary));
  }
  return width_ == 2 ? packed<uint16_t>(ids) : packed<uint32_t>(ids);
}

void ChunkEncoder::encode_document(std::string_view text, const DocumentPart& part, EncodedChunk& result,
                                   std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  if (part.first) ids.insert(ids.end(), prefix_.begin(), prefix_.end());
  encode_part(text, ids);
  if (part.last && end_of_text_) ids.push_back(*end_of_text_);
  result.unseparated += part.last && !end_of_text_ && !text.ends_with('\n');
  result.invalid_utf8_bytes += count_invalid_utf8(text);
  result.ends_as_text += count_ends_in(text, ends_);
  result.parts.push_back({.tokens = static_cast<int64_t>(ids.size() - before),
                          .bytes = static_cast<int64_t>(text.size()),
                          .last = part.last,
                          .validation = is_for_validation(part.key, options_)});
}

void ChunkEncoder::encode_conversation(std::string_view text, const DocumentPart& part, EncodedChunk& result,
                                       std::vector<int32_t>& ids) const {
  const chat::Dialogue dialogue =
      chat::read_conversation(nlohmann::json::parse(text), chat::ConversationShape::messages);
  const chat::LearnedConversation conversation = conversations_->encode(dialogue);
  if (conversation.ids.empty()) {
    ++result.conversations.unanswered;
    return;
  }
  EncodedPart encoded{.tokens = std::ssize(conversation.ids), .validation = is_for_validation(part.key, options_)};
  for (size_t i = 0; i < conversation.ids.size(); ++i) {
    uint8_t mark = i == 0 ? data::TokenMark::kBegins : 0;
    if (conversation.ends[i]) mark |= data::TokenMark::kEnds;
    if (conversation.learned[i]) {
      mark |= data::TokenMark::kLearned;
      ++encoded.learned;
      encoded.bytes += token_bytes_.at(conversation.ids[i]);
    }
    result.marks += static_cast<char>(mark);
  }
  ids.insert(ids.end(), conversation.ids.begin(), conversation.ids.end());
  result.parts.push_back(encoded);
  result.conversations.turns += conversation.turns;
  result.conversations.answers += conversation.answers;
  result.conversations.last_answer_only += conversation.last_answer_only;
}

void ChunkEncoder::encode_part(std::string_view text, std::vector<int32_t>& ids) const {
  if (!parse_special_tokens_) return tokenizer_.encode(text, ids);
  const std::vector<int32_t> more = tokenizer_.encode_with_specials(text);
  ids.insert(ids.end(), more.begin(), more.end());
}

size_t ChunkEncoder::last_cut(std::string_view text) const {
  for (int inside = 0;;) {
    const size_t cut = tokenizer_.last_cut(text);
    if (cut == 0) return 0;
    // Bytes can be cut anywhere, but half a character would count as invalid UTF-8.
    const bool inside_character = !utf8::begins_character(text[cut]) && ++inside < 4;
    const size_t better = inside_character ? cut : name_across(text, cut, parsed_names_);
    if (!inside_character && better == cut) return cut;
    text = text.substr(0, better);
  }
}

}  // namespace gpt::prepare
