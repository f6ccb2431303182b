// A chunk of text to the ids of its documents, as they lie in a bin.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bin_writer.h"
#include "document_reader.h"
#include "gpt/chat/learned_conversation.h"
#include "gpt/prepare/prepare_options.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::prepare {

// Bytes that are part of no UTF-8 character.
int64_t count_invalid_utf8(std::string_view text);

// May be used on several threads at once.
class ChunkEncoder {
 public:
  // `conversations`: that is what the documents are. Throws what chat::choose_template() throws.
  ChunkEncoder(const tokenizer::Tokenizer& tokenizer, const PrepareOptions& options, bool conversations = false);

  // Throws gpt::Error(data), beginning with the place in the input. A text that the tokenizer needs as UTF-8, and is not,
  // is refused at `reader`, which may pass the file over: then the result is empty. The same holds for a conversation that the chat
  // template does not take.
  EncodedChunk encode(const Chunk& chunk, DocumentReader& reader) const;

  // Where a text can be cut: not inside a special token either, where those are parsed.
  size_t last_cut(std::string_view text) const;

  const std::string& chat_template() const { return chat_template_; }  // of conversations

 private:
  void encode_document(std::string_view text, const DocumentPart& part, EncodedChunk& result,
                       std::vector<int32_t>& ids) const;
  void encode_conversation(std::string_view text, const DocumentPart& part, EncodedChunk& result,
                           std::vector<int32_t>& ids) const;
  std::string packed_checked(const std::vector<int32_t>& ids, const Chunk& chunk, const DocumentReader& reader) const;
  void encode_part(std::string_view text, std::vector<int32_t>& ids) const;

  const tokenizer::Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  const bool parse_special_tokens_;
  const std::vector<int32_t> prefix_;  // of a document
  const std::optional<int32_t> end_of_text_;
  std::vector<std::string> parsed_names_;  // of special tokens in the text
  std::vector<std::string> ends_;          // the texts of ends that stay text
  const int width_;
  std::optional<chat::ConversationEncoder> conversations_;
  std::string chat_template_;
  std::vector<int32_t> token_bytes_;  // the text of each id, for conversations
};

}  // namespace gpt::prepare
