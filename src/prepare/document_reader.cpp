#include "document_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/tokenizer/utf8.h"
#include "json_lines.h"

namespace gpt::prepare {
namespace {

constexpr size_t kChunk = 1 << 19;  // large enough that handing it over costs nothing, small enough for many threads
constexpr size_t kBlock = 1 << 16;  // read at once
constexpr size_t kLongestPiece =
    1 << 22;  // a longer run without a place to cut is cut anyway, so that memory stays bounded
constexpr size_t kLongestLine = 1 << 27;

// Appends at most `size` bytes of `stream`, which has read(); false at its end.
template <class Stream>
bool append(std::string& text, Stream& stream, size_t size) {
  const size_t before = text.size();
  text.resize(before + size);
  const size_t count = stream.read(text.data() + before, size);
  text.resize(before + count);
  return count > 0;
}

// The CRs that are missing in this part of the text.
size_t joined_between(const Chunk& chunk, size_t begin, size_t end) {
  const auto first = std::lower_bound(chunk.joined.begin(), chunk.joined.end(), begin);
  return static_cast<size_t>(std::lower_bound(first, chunk.joined.end(), end) - first);
}

std::vector<DocumentPart>::const_iterator part_at(const Chunk& chunk, size_t offset) {
  const auto ends_later = [](size_t at, const DocumentPart& part) { return at < part.end; };
  return std::upper_bound(chunk.parts.begin(), chunk.parts.end(), offset, ends_later);
}

// The end of a long text that may be cut nowhere, short of a character's inside.
size_t forced_cut(std::string_view text) {
  size_t cut = text.size() - 1;
  while (cut > text.size() - 4 && !utf8::begins_character(text[cut])) --cut;
  return cut;
}

}  // namespace

DocumentReader::DocumentReader(std::vector<Source> sources, Options options)
    : sources_(std::move(sources)), options_(std::move(options)), is_used_(sources_.size()), kinds_(sources_.size()) {}

std::optional<Chunk> DocumentReader::next() {
  if (finished_) return std::nullopt;
  std::optional<Chunk> chunk = next_chunk();
  if (chunk && options_.max_chars > 0) {
    *chunk = with_documents(std::move(*chunk));
    apply_limit(*chunk);
  }
  return chunk;
}

std::optional<Chunk> DocumentReader::next_chunk() {
  for (;;) {
    try {
      return step();
    } catch (const UnreadableSource& error) { pass_over(error); }
  }
}

std::optional<Chunk> DocumentReader::step() {
  for (;;) {
    if (reading_) {
      if (read_document()) continue;
      if (auto full = split_long_document()) return full;
    } else if (lines_) {
      if (auto chunk = next_lines()) return chunk;
      lines_.reset();
    } else if (chunk_.text.size() >= kChunk) {
      return take(chunk_.text.size());
    } else if (documents_ && documents_->next_document()) {
      reading_ = first_part_ = true;
      begin_ = chunk_.text.size();
      limit_ = kChunk;
      position_ = document_ = documents_->position();
    } else if (const bool more = open_next_source(); (!more || lines_) && !chunk_.text.empty()) {
      return take(chunk_.text.size());
    } else if (!more) {
      return std::nullopt;
    }
  }
}

void DocumentReader::close_source() {
  separators_ = separators();
  documents_.reset();
}

bool DocumentReader::open_next_source() {
  close_source();
  if (next_source_ == sources_.size()) return false;
  const Source& source = sources_[next_source_++];
  handed_out_ = has_crlf_ = has_cr_ = has_mark_ = held_back_ = false;
  Content content = open_content(source, open_file(source, consumed_, options_.waiting));
  if (options_.conversations && content.kind != TextKind::json_lines) {
    throw UnreadableSource(source.name,
                           fmt::format("it holds {}, and the input is conversations in JSON lines ('{}')",
                                       describe(content.kind, Packing::none), chat::name_of(*options_.conversations)));
  }
  kinds_[this->source()] = content.kind;
  if (std::string other = disagreement(source, content); !other.empty()) disagreements_.push_back(std::move(other));
  if (const auto markup = markup_of(source, content)) markups_.push_back(*markup);
  if (content.kind == TextKind::json_lines) {
    lines_ = std::move(content.bytes);
    position_ = 1;
  } else {
    has_mark_ = content.kind == TextKind::plain && content.byte_order_mark > 0;
    byte_order_mark_files_ += has_mark_;
    cr_files_ += has_cr_ = content.has_cr_lines;
    documents_ = open_documents(source, std::move(content), options_.separators);
  }
  is_used_[this->source()] = true;
  return true;
}

// Nothing of the open source goes into the chunk that is being filled.
void DocumentReader::pass_over(const UnreadableSource& error) {
  if (!sources_[source()].found) throw error;
  add_fault(source(), {.why = error.what(), .handed_out = handed_out_, .position = position_});
  std::vector<DocumentPart>& parts = chunk_.parts;
  while (!parts.empty() && parts.back().source == source()) parts.pop_back();
  chunk_.text.resize(parts.empty() ? 0 : parts.back().end);
  std::erase_if(chunk_.joined, [this](size_t at) { return at >= chunk_.text.size(); });
  crlf_files_ -= has_crlf_;
  cr_files_ -= has_cr_;
  byte_order_mark_files_ -= has_mark_;
  documents_.reset();
  lines_.reset();
  reading_ = false;
}

// True when the document has ended, false when it has become as long as it may be.
bool DocumentReader::read_document() {
  while (chunk_.text.size() - begin_ < limit_) {
    const size_t room = limit_ - (chunk_.text.size() - begin_);
    if (read_block(std::min(room, kBlock))) continue;
    reading_ = false;
    if (chunk_.text.size() > begin_ || !first_part_) end_part(chunk_.text.size(), /*last=*/true);
    return true;
  }
  return false;
}

// The chunk's text never ends with a CR whose LF may yet come, so that no cut can part them.
bool DocumentReader::read_block(size_t size) {
  if (kinds_[source()] != TextKind::plain) return append(chunk_.text, *documents_, size);
  const size_t begin = chunk_.text.size();
  const bool was_held_back = std::exchange(held_back_, false);
  if (was_held_back) chunk_.text += '\r';
  const size_t room = was_held_back && size > 1 ? size - 1 : size;
  if (!append(chunk_.text, *documents_, room)) return false;
  join_line_ends(begin);
  held_back_ = chunk_.text.ends_with('\r');
  if (held_back_) chunk_.text.pop_back();
  return true;
}

// CRLF becomes LF from `begin` of the chunk's text on.
void DocumentReader::join_line_ends(size_t begin) {
  std::string& text = chunk_.text;
  size_t to = text.find('\r', begin);
  if (to == std::string::npos) return;
  const size_t known = chunk_.joined.size();
  for (size_t from = to; from < text.size();) {  // where a CR is
    if (from + 1 < text.size() && text[from + 1] == '\n') {
      chunk_.joined.push_back(static_cast<uint32_t>(to));
      ++from;
    }
    const size_t next = std::min(text.find('\r', from + 1), text.size());
    std::memmove(text.data() + to, text.data() + from, next - from);
    to += next - from;
    from = next;
  }
  text.resize(to);
  if (chunk_.joined.size() > known && !std::exchange(has_crlf_, true)) ++crlf_files_;
}

// A long document begins a chunk, so that its parts do not depend on what lies before it.
std::optional<Chunk> DocumentReader::split_long_document() {
  if (begin_ > 0) return take(begin_);
  size_t cut = options_.last_cut(chunk_.text);
  if (cut == 0 && limit_ < kLongestPiece) {
    limit_ *= 2;
    return std::nullopt;
  }
  if (cut == 0) cut = forced_cut(chunk_.text);
  end_part(cut, /*last=*/false);
  first_part_ = false;
  limit_ = kChunk;
  return take(cut);
}

void DocumentReader::end_part(size_t end, bool last) {
  const std::string_view text = std::string_view(chunk_.text).substr(begin_);
  if (first_part_) key_ = document_key(text);
  chunk_.parts.push_back({.end = end,
                          .source = source(),
                          .position = position_,
                          .document = document_,
                          .first = first_part_,
                          .last = last,
                          .key = key_});
  if (kinds_[source()] == TextKind::plain) position_ += end - begin_ + joined_between(chunk_, begin_, end);
}

// The chunk up to `end`; the rest begins the next one.
Chunk DocumentReader::take(size_t end) {
  Chunk result = std::exchange(chunk_, {});
  chunk_.text.reserve(2 * kChunk);
  chunk_.text.append(result.text, end);
  result.text.resize(end);
  const auto rest = std::lower_bound(result.joined.begin(), result.joined.end(), end);
  for (auto at = rest; at != result.joined.end(); ++at) chunk_.joined.push_back(*at - static_cast<uint32_t>(end));
  result.joined.erase(rest, result.joined.end());
  begin_ = 0;
  handed_out_ |= !result.parts.empty() && result.parts.back().source == source();
  return result;
}

std::optional<Chunk> DocumentReader::next_lines() {
  for (size_t limit = kChunk;; limit *= 2) {
    bool more = true;
    while (more && chunk_.text.size() < limit) more = append(chunk_.text, *lines_, kBlock);
    if (chunk_.text.empty()) return std::nullopt;
    const size_t last = more ? chunk_.text.rfind('\n') : chunk_.text.size() - 1;
    const DocumentPart part{.end = last + 1, .source = source(), .position = position_};
    if (last == std::string::npos) {
      if (limit < kLongestLine) continue;
      throw UnreadableSource(fmt::format("{}: line {}", sources_[source()].name, position_),
                             fmt::format("it is longer than {} MB; is this a file of JSON lines?", kLongestLine >> 20));
    }
    Chunk chunk = take(last + 1);
    handed_out_ = true;
    position_ += static_cast<uint64_t>(std::count(chunk.text.begin(), chunk.text.end(), '\n'));
    chunk.parts = {part};
    chunk.raw_lines = true;
    return chunk;
  }
}

Chunk DocumentReader::parsed(Chunk chunk) {
  chunk = with_documents(std::move(chunk));
  return options_.repeated ? without_repeated(std::move(chunk)) : chunk;
}

Chunk DocumentReader::without_repeated(Chunk chunk) const {
  const auto is_repeated = [this](const DocumentPart& part) {
    return options_.repeated->contains(sources_[part.source].number, part.document);
  };
  if (std::none_of(chunk.parts.begin(), chunk.parts.end(), is_repeated)) return chunk;
  Chunk kept;
  size_t begin = 0;
  auto joined = chunk.joined.begin();
  for (DocumentPart part : chunk.parts) {
    const size_t end = part.end, removed = begin - kept.text.size();
    const bool is_kept = !is_repeated(part);
    for (; joined != chunk.joined.end() && *joined < end; ++joined) {
      if (is_kept) kept.joined.push_back(*joined - static_cast<uint32_t>(removed));
    }
    if (is_kept) {
      kept.text.append(chunk.text, begin, end - begin);
      part.end = kept.text.size();
      kept.parts.push_back(part);
    }
    begin = end;
  }
  return kept;
}

Chunk DocumentReader::with_documents(Chunk chunk) {
  if (!chunk.raw_lines) return chunk;
  const DocumentPart first = chunk.parts.at(0);
  const Source& source = sources_[first.source];
  try {
    JsonDocuments documents =
        parse_json_lines(chunk.text, options_.text_field, first, source.name, options_.conversations);
    replaced_characters_ += documents.replaced_characters;
    return std::move(documents.chunk);
  } catch (const BadJsonLine& bad) {
    const char* hint =
        source.kind == TextKind::json_lines ? "" : " (the file holds JSON lines, although its name says otherwise)";
    const std::string why = bad.what() + std::string(hint);
    if (!source.found) throw Error(ExitCode::data, why);
    add_fault(first.source, {.why = why, .handed_out = true, .position = bad.line()});
    return {};
  }
}

void DocumentReader::apply_limit(Chunk& chunk) {
  size_t end = 0;
  const auto is_too_many = [this](char c) { return utf8::begins_character(c) && characters_++ == options_.max_chars; };
  while (end < chunk.text.size() && !is_too_many(chunk.text[end])) ++end;
  if (end == chunk.text.size()) return;
  finished_ = true;
  std::vector<DocumentPart>& parts = chunk.parts;
  if (options_.conversations) {  // which are left out whole
    while (!parts.empty() && parts.back().end > end) parts.pop_back();
    return chunk.text.resize(parts.empty() ? 0 : parts.back().end);
  }
  chunk.text.resize(end);
  while (parts.size() > 1 && parts[parts.size() - 2].end >= end) parts.pop_back();
  parts.back().end = end;
  parts.back().last = true;
  if (end == 0 && parts.back().first) parts.clear();
}

std::string DocumentReader::place(const Chunk& chunk, size_t offset) const {
  const auto part = part_at(chunk, offset);
  const size_t begin = part == chunk.parts.begin() ? 0 : std::prev(part)->end;
  const Source& source = sources_[part->source];
  const TextKind kind = kinds_[part->source];
  if (options_.conversations) return fmt::format("{}: line {}", source.name, part->position);
  if (kind == TextKind::json_lines)
    return fmt::format("{}: line {}: byte {}", source.name, part->position, offset - begin);
  if (kind == TextKind::wet) return fmt::format("{}: document {}", source.name, part->position);
  return fmt::format("{}: byte {}", source.name,
                     part->position + offset - begin + joined_between(chunk, begin, offset + 1));
}

void DocumentReader::refuse(const Chunk& chunk, size_t offset, const std::string& why) {
  const DocumentPart& part = *part_at(chunk, offset);
  const std::string message = fmt::format("{}: {}", place(chunk, offset), why);
  if (!sources_[part.source].found) throw Error(ExitCode::data, message);
  add_fault(part.source, {.why = message, .handed_out = true, .position = part.position});
}

// The first one counts, whichever thread finds it first.
void DocumentReader::add_fault(uint32_t source, Fault fault) {
  const std::lock_guard lock(faults_mutex_);
  const auto [known, is_new] = faults_.try_emplace(source, fault);
  if (!is_new && fault.position < known->second.position) known->second = std::move(fault);
}

std::map<std::string, int64_t> DocumentReader::separators() const {
  std::map<std::string, int64_t> result = separators_;
  if (documents_) {
    for (const auto& [line, count] : documents_->separators()) result[line] += count;
  }
  return result;
}

std::vector<Source> DocumentReader::used() const {
  std::vector<Source> result;
  for (uint32_t i = 0; i < sources_.size(); ++i) {
    if (is_used_[i] && !faults_.contains(i)) result.push_back(sources_[i]);
  }
  return result;
}

}  // namespace gpt::prepare
