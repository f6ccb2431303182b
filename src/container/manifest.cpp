#include "manifest.h"

#include <fmt/format.h>

#include <algorithm>

#include "gpt/core/hash.h"

namespace gpt::container {
namespace {

// The pieces of a record whose data begin at `start`. They end where the file's offset is a multiple of their greatest length, so that no
// two share a page or a block of a disk. An empty record is one piece, too.
std::vector<RecordPiece> pieces_of(size_t record, uint64_t size, uint64_t start, int version) {
  std::vector<RecordPiece> pieces;
  uint64_t begin = 0;
  do {
    const uint64_t border = ((start + begin) / kLongestPiece + 1) * kLongestPiece - start;
    const uint64_t end = version == 1 ? size : std::min(size, border);
    pieces.push_back({record, begin, end});
    begin = end;
  } while (begin < size);
  return pieces;
}

}  // namespace

std::string_view name_of(const zip::Entry& entry) { return std::string_view(entry.name).substr(kFolder.size()); }

bool is_possible_name(std::string_view name) {
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
  constexpr size_t kLongestName = 1024;
  return !name.empty() && name.size() <= kLongestName && std::all_of(name.begin(), name.end(), is_plain);
}

uint64_t data_offset(const zip::Entry& entry) { return entry.offset + zip::local_header(entry).size(); }

Manifest::Manifest(int version, std::span<const zip::Entry> entries)
    : text_(fmt::format(R"({{"format": "{}", "version": {}, "records": {{)", kFormat, version)) {
  std::string_view line_end = "\n";
  for (size_t record = 0; record < entries.size(); ++record) {
    const zip::Entry& entry = entries[record];
    text_ += fmt::format(R"({}"{}": {{"bytes": {}, "xxh3_128": )", line_end, name_of(entry), entry.size);
    if (version > 1) text_ += '[';
    first_pieces_.push_back(pieces_.size());
    for (const RecordPiece& piece : pieces_of(record, entry.size, data_offset(entry), version)) {
      text_ += piece.begin == 0 ? "\"" : ", \"";
      hashes_.push_back(text_.size());
      text_.append(kHashDigits, '0') += '"';
      pieces_.push_back(piece);
    }
    text_ += version > 1 ? "]}" : "}";
    line_end = ",\n";
  }
  first_pieces_.push_back(pieces_.size());
  text_ += "\n}}\n";
}

void Manifest::set_hash(size_t piece, std::string_view hash) {
  std::copy_n(hash.begin(), kHashDigits, text_.begin() + static_cast<ptrdiff_t>(hashes_[piece]));
}

bool Manifest::take_hashes(std::string_view from) {
  if (from.size() != text_.size()) return false;
  for (size_t i = 0; i < hashes_.size(); ++i) set_hash(i, from.substr(hashes_[i], kHashDigits));
  return from == text_;
}

std::string ending_of(int version, const std::vector<zip::Entry>& entries, std::string_view manifest, uint64_t offset) {
  const std::string mark = fmt::format("{} {} ", kFormat, version);
  std::string ending = zip::directory(entries, offset, mark.size() + kHashDigits);
  std::string covered;
  for (const zip::Entry& entry : entries) covered += zip::local_header(entry);
  covered.append(manifest).append(ending);
  return ending + mark + hash128(covered);
}

}  // namespace gpt::container
