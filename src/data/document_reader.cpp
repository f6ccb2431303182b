#include "document_reader.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/tokenizer/utf8.h"
#include "json_lines.h"

namespace gpt {
namespace {

constexpr size_t kChunk = 1 << 19;         // large enough that handing it over costs nothing, small enough for many threads
constexpr size_t kBlock = 1 << 16;         // read at once
constexpr size_t kLongestPiece = 1 << 22;  // a longer run without a place to cut is cut anyway, so that memory stays bounded
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

// The end of a long text that may be cut nowhere, short of a character's inside.
size_t forced_cut(std::string_view text) {
  size_t cut = text.size() - 1;
  while (cut > text.size() - 4 && !utf8::begins_character(text[cut])) --cut;
  return cut;
}

}  // namespace

uint64_t document_key(std::string_view text) {
  constexpr size_t kBeginning = 1 << 16;
  const std::string_view beginning = text.substr(0, kBeginning);
  return XXH3_64bits(beginning.data(), beginning.size());
}

DocumentReader::DocumentReader(std::vector<Source> sources, Options options)
    : sources_(std::move(sources)), options_(std::move(options)), is_used_(sources_.size()) {}

std::optional<Chunk> DocumentReader::next() {
  if (finished_) return std::nullopt;
  std::optional<Chunk> chunk = next_chunk();
  if (chunk && options_.max_chars > 0) {
    *chunk = parsed(std::move(*chunk));
    apply_limit(*chunk);
  }
  return chunk;
}

std::optional<Chunk> DocumentReader::next_chunk() {
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
      if (sources_[next_source_ - 1].kind == TextKind::wet) ++position_;
    } else if (const bool more = open_next_source(); (!more || lines_) && !chunk_.text.empty()) {
      return take(chunk_.text.size());
    } else if (!more) {
      return std::nullopt;
    }
  }
}

bool DocumentReader::open_next_source() {
  documents_.reset();
  while (next_source_ < sources_.size()) {
    const Source& source = sources_[next_source_++];
    auto bytes = open_source(source, consumed_, options_.waiting);
    is_used_[next_source_ - 1] = true;
    position_ = source.kind == TextKind::json_lines ? 1 : 0;
    if (source.kind == TextKind::json_lines) {
      lines_ = std::move(bytes);
      return true;
    }
    documents_ = open_documents(source, std::move(bytes));
    if (documents_) return true;
    is_used_[next_source_ - 1] = false;
    skipped_.push_back(source.path);
  }
  return false;
}

// True when the document has ended, false when it has become as long as it may be.
bool DocumentReader::read_document() {
  while (chunk_.text.size() - begin_ < limit_) {
    const size_t room = limit_ - (chunk_.text.size() - begin_);
    if (append(chunk_.text, *documents_, std::min(room, kBlock))) continue;
    reading_ = false;
    if (chunk_.text.size() > begin_ || !first_part_) end_part(chunk_.text.size(), /*last=*/true);
    return true;
  }
  return false;
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
                          .source = static_cast<uint32_t>(next_source_ - 1),
                          .position = position_,
                          .first = first_part_,
                          .last = last,
                          .key = key_});
  if (sources_[next_source_ - 1].kind == TextKind::plain) position_ += end - begin_;
}

// The chunk up to `end`; what lies behind begins the next one.
Chunk DocumentReader::take(size_t end) {
  Chunk result = std::exchange(chunk_, {});
  chunk_.text.reserve(2 * kChunk);
  chunk_.text.append(result.text, end);
  result.text.resize(end);
  begin_ = 0;
  return result;
}

std::optional<Chunk> DocumentReader::next_lines() {
  for (size_t limit = kChunk;; limit *= 2) {
    bool more = true;
    while (more && chunk_.text.size() < limit) more = append(chunk_.text, *lines_, kBlock);
    if (chunk_.text.empty()) return std::nullopt;
    const size_t last = more ? chunk_.text.rfind('\n') : chunk_.text.size() - 1;
    const DocumentPart part{.end = last + 1, .source = static_cast<uint32_t>(next_source_ - 1), .position = position_};
    if (last == std::string::npos) {
      if (limit < kLongestLine) continue;
      throw Error(ExitCode::data, fmt::format("{}: it is longer than {} MB; is this a file of JSON lines?", place(part),
                                              kLongestLine >> 20));
    }
    Chunk chunk = take(last + 1);
    position_ += static_cast<uint64_t>(std::count(chunk.text.begin(), chunk.text.end(), '\n'));
    chunk.parts = {part};
    chunk.raw_lines = true;
    return chunk;
  }
}

Chunk DocumentReader::parsed(Chunk chunk) const {
  if (!chunk.raw_lines) return chunk;
  const DocumentPart first = chunk.parts.at(0);
  return parse_json_lines(chunk.text, options_.text_field, first, sources_[first.source].name);
}

void DocumentReader::apply_limit(Chunk& chunk) {
  size_t end = 0;
  const auto is_too_many = [this](char c) { return utf8::begins_character(c) && characters_++ == options_.max_chars; };
  while (end < chunk.text.size() && !is_too_many(chunk.text[end])) ++end;
  if (end == chunk.text.size()) return;
  finished_ = true;
  chunk.text.resize(end);
  std::vector<DocumentPart>& parts = chunk.parts;
  while (parts.size() > 1 && parts[parts.size() - 2].end >= end) parts.pop_back();
  parts.back().end = end;
  parts.back().last = true;
  if (end == 0 && parts.back().first) parts.clear();
}

std::string DocumentReader::place(const DocumentPart& part) const {
  const Source& source = sources_[part.source];
  if (source.kind == TextKind::json_lines) return fmt::format("{}: line {}", source.name, part.position);
  if (source.kind == TextKind::wet) return fmt::format("{}: document {}", source.name, part.position);
  if (part.position > 0) return fmt::format("{}: behind byte {}", source.name, part.position);
  return source.name;
}

std::string DocumentReader::place(const DocumentPart& part, size_t offset) const {
  const Source& source = sources_[part.source];
  if (source.kind == TextKind::plain) return fmt::format("{}: byte {}", source.name, part.position + offset);
  return place(part);
}

std::vector<Source> DocumentReader::used() const {
  std::vector<Source> result;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (is_used_[i]) result.push_back(sources_[i]);
  }
  return result;
}

}  // namespace gpt
