#include "gpt/prepare/input_list.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "content.h"
#include "conversation_input.h"
#include "document_reader.h"
#include "gpt/core/format.h"
#include "gpt/core/printable.h"
#include "gpt/core/text_table.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "gpt/tokenizer/text_error.h"
#include "gpt/tokenizer/utf8.h"
#include "source_list.h"

namespace gpt::prepare {
namespace {

bool needs_utf8(const std::string& tokenizer, const std::string& saved) {
  if (saved.empty() && tokenizer == "char") return true;
  if (saved.empty() && (tokenizer == "gpt2" || tokenizer == "byte" || tokenizer::trained_vocabulary(tokenizer)))
    return false;
  const auto made =
      saved.empty() ? tokenizer::make_tokenizer(tokenizer, {}) : tokenizer::tokenizer_from_json(saved, tokenizer);
  try {
    (void)made->encode("\xff");
    return false;
  } catch (const tokenizer::TextError&) { return true; }  // it is no character, or has no token
}

void require_utf8(const Chunk& chunk, DocumentReader& reader) {
  size_t begin = 0;
  for (const DocumentPart& part : chunk.parts) {
    const std::string_view text = std::string_view(chunk.text).substr(begin, part.end - begin);
    begin = part.end;
    if (utf8::is_valid(text)) continue;
    try {
      for (size_t at = 0; at < text.size();) at += utf8::decode(text, at).bytes;
    } catch (const tokenizer::InvalidUtf8& error) {
      return reader.refuse(chunk, part.end - text.size() + error.offset(), error.why_and_remedy());
    }
  }
}

// Reads all of it, as it will be read. Throws UnreadableSource with the reason for which it will be passed over.
std::string how_it_is_read(const Source& source, const std::string& field,
                           std::optional<chat::ConversationShape> conversations, bool only_utf8) {
  if (source.stream) return describe(source.kind, source.packing);  // it can be read once
  std::atomic<uint64_t> consumed = 0;
  const Content content = open_content(source, open_file(source, consumed, [] {}));
  DocumentReader reader({source}, {.last_cut = utf8::last_character,
                                   .text_field = field,
                                   .waiting = [] {},
                                   .conversations = conversations});
  while (std::optional<Chunk> chunk = reader.next()) {
    const Chunk documents = reader.parsed(std::move(*chunk));
    if (only_utf8) require_utf8(documents, reader);
    if (!reader.faults().empty()) break;
  }
  if (!reader.faults().empty())  // without the name, which comes first
    throw UnreadableSource(source.name, reader.faults().begin()->second.why.substr(source.name.size() + 2));
  return describe(content.kind, content.packing);
}

}  // namespace

std::string list_input(const PrepareOptions& options, const std::string& output_dir) {
  const bool only_utf8 = needs_utf8(options.tokenizer, options.saved_tokenizer);
  const SourceList list = find_sources(options.inputs, output_dir, options.cache_dir);
  const auto conversations = options.chat_format ? conversations_in(list.sources, options.text_field) : std::nullopt;
  TextTable read{{{TextColumn::right, 9}, {TextColumn::left, 24}, {}}};
  std::string passed_over;
  int64_t files = 0, bytes = 0, others = std::ssize(list.passed_over);
  for (const PassedOver& file : list.passed_over)
    passed_over += fmt::format("passed over: {}\n", printable_line(file.why));
  for (const Source& source : list.sources) {
    try {
      read.rows.push_back({source.stream ? "" : format_bytes(static_cast<double>(source.bytes)),
                           how_it_is_read(source, options.text_field, conversations, only_utf8),
                           printable_line(source.name)});
      ++files, bytes += source.bytes;
    } catch (const UnreadableSource& error) {
      if (!source.found) throw;
      passed_over += fmt::format("passed over: {}\n", printable_line(error.what()));
      ++others;
    }
  }
  std::string result = read.text() + passed_over;
  for (const LeftOut& entry : list.left_out)
    result +=
        fmt::format("left out: {}: {}\n", printable_line(entry.path), entry.what.empty() ? "it is hidden" : entry.what);
  return result + fmt::format("{} to read with the tokenizer {}, {}; {} passed over, {} left out\n",
                              plural(files, "file"), options.tokenizer, format_bytes(static_cast<double>(bytes)),
                              others, list.left_out.size());
}

}  // namespace gpt::prepare
