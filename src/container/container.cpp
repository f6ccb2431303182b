#include "gpt/container/container.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "gpt/container/zip.h"
#include "gpt/core/file.h"
#include "gpt/core/hash.h"
#include "manifest.h"

namespace gpt::container {

using namespace container;

namespace {

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A name as messages quote it.
std::string shortened(std::string_view name) {
  constexpr size_t kLongest = 200;
  return name.size() <= kLongest ? std::string(name) : std::string(name.substr(0, kLongest)) + "...";
}

// One record behind the other, from byte 0.
std::vector<zip::Entry> entries_of(const std::vector<RecordPlan>& records) {
  std::set<std::string_view> names = {kManifest};
  std::vector<zip::Entry> entries;
  uint64_t offset = 0;
  for (const auto& [name, bytes] : records) {
    if (!is_possible_name(name)) throw std::invalid_argument("record name '" + name + "'");
    if (!names.insert(name).second) throw std::invalid_argument("two records '" + name + "'");
    entries.push_back({std::string(kFolder) + name, offset, bytes, 0});
    offset = data_offset(entries.back()) + bytes;
  }
  return entries;
}

uint32_t crc32_of(std::string_view bytes) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

struct ContainerWriter::Impl {
  explicit Impl(const std::vector<RecordPlan>& records) : entries(entries_of(records)), manifest(kVersion, entries) {}

  // The manifest's own entry, which ends the list.
  void add_manifest() {
    const uint64_t offset = entries.empty() ? 0 : data_offset(entries.back()) + entries.back().size;
    entries.push_back({fmt::format("{}{}", kFolder, kManifest), offset, manifest.text().size(), 0});
  }

  // CRC-32 of a whole record, from those of its pieces.
  uint32_t crc_of(size_t record) const {
    uLong crc = 0;
    for (size_t i = manifest.first_piece(record); i < manifest.first_piece(record + 1); ++i) {
      const RecordPiece& piece = manifest.pieces()[i];
      crc = crc32_combine(crc, crcs[i], static_cast<z_off_t>(piece.end - piece.begin));
    }
    return static_cast<uint32_t>(crc);
  }

  std::vector<zip::Entry> entries;
  Manifest manifest;
  std::vector<uint32_t> crcs = std::vector<uint32_t>(manifest.pieces().size());
  std::vector<char> is_written = std::vector<char>(manifest.pieces().size());
  std::unique_ptr<AtomicFile> file;
  std::unique_ptr<JoinedFile> joined;  // instead, where another process commits it
};

std::vector<RecordPiece> container_pieces(const std::vector<RecordPlan>& records) {
  return Manifest(kVersion, entries_of(records)).pieces();
}

ContainerWriter::ContainerWriter(std::string path, const std::vector<RecordPlan>& records) : impl_(new Impl(records)) {
  impl_->add_manifest();
  const zip::Entry& last = impl_->entries.back();
  const uint64_t end = data_offset(last) + last.size;
  const uint64_t size = end + ending_of(kVersion, impl_->entries, impl_->manifest.text(), end).size();
  impl_->file = std::make_unique<AtomicFile>(std::move(path), size);
  impl_->file->resize(size);
}

ContainerWriter::ContainerWriter(std::string path, const std::vector<RecordPlan>& records,
                                 const std::string& unfinished)
    : impl_(new Impl(records)) {
  impl_->joined = std::make_unique<JoinedFile>(std::move(path), unfinished);
}

ContainerWriter::~ContainerWriter() = default;

const std::vector<RecordPiece>& ContainerWriter::pieces() const { return impl_->manifest.pieces(); }

void ContainerWriter::write(size_t piece, std::span<const std::byte> bytes) {
  const auto& [record, begin, end] = pieces().at(piece);
  if (bytes.size() != end - begin)
    throw std::invalid_argument(fmt::format("{} bytes of piece {}", bytes.size(), piece));
  impl_->crcs[piece] = crc32_of(as_text(bytes));
  impl_->manifest.set_hash(piece, hash128(as_text(bytes)));
  const uint64_t offset = data_offset(impl_->entries[record]) + begin;
  impl_->joined ? impl_->joined->overwrite(offset, as_text(bytes)) : impl_->file->overwrite(offset, as_text(bytes));
  impl_->is_written[piece] = 1;
}

PieceSums ContainerWriter::sums(size_t piece) const {
  PieceSums sums{.hash = {}, .crc = impl_->crcs.at(piece)};
  const std::string_view hash = impl_->manifest.hash(piece);
  std::copy(hash.begin(), hash.end(), sums.hash.begin());
  return sums;
}

void ContainerWriter::take(size_t piece, const PieceSums& sums) {
  impl_->crcs.at(piece) = sums.crc;
  impl_->manifest.set_hash(piece, {sums.hash.data(), sums.hash.size()});
  impl_->is_written[piece] = 1;
}

const std::string& ContainerWriter::unfinished_path() const { return impl_->file->unfinished_path(); }

void ContainerWriter::sync() { impl_->joined->sync(); }

void ContainerWriter::commit() {
  const auto& written = impl_->is_written;
  if (std::find(written.begin(), written.end(), 0) != written.end())
    throw std::logic_error("a piece of a container is not written");
  std::vector<zip::Entry>& entries = impl_->entries;
  AtomicFile& file = *impl_->file;
  const std::string& manifest = impl_->manifest.text();
  for (size_t i = 0; i + 1 < entries.size(); ++i) entries[i].crc = impl_->crc_of(i);
  entries.back().crc = crc32_of(manifest);
  for (const zip::Entry& entry : entries) file.overwrite(entry.offset, zip::local_header(entry));
  const uint64_t end = data_offset(entries.back()) + manifest.size();
  file.overwrite(end - manifest.size(), manifest);
  file.overwrite(end, ending_of(kVersion, entries, manifest, end));
  file.commit();
}

namespace {

// What a file that is not a checkpoint is, judging by its first bytes.
std::string what_it_is(std::string_view file) {
  constexpr size_t kEnough = 512;
  std::string start(file.substr(0, kEnough));
  struct Known {
    std::string_view start, what;
  };
  using namespace std::string_view_literals;
  static constexpr std::array kKnown = {
      Known{"version https://git-lfs"sv, "a git-lfs pointer; run `git lfs pull`"sv},
      Known{"\x1f\x8b"sv, "a gzip file; unpack it first"sv},
      Known{
          "GGUF"sv,
          "a GGUF model, which is written here and not read; name the checkpoint that it was made of, or a folder for transformers"sv},
      Known{"\x80\x02"sv, "a Python pickle, which is never opened because that would execute it"sv},
      Known{"\x80\x04"sv, "a Python pickle, which is never opened because that would execute it"sv},
  };
  for (const auto& [beginning, what] : kKnown) {
    if (start.starts_with(beginning)) return std::string(what);
  }
  if (start.starts_with("PK\x03\x04")) {
    return start.find("/data.pkl") != std::string::npos
               ? "a PyTorch file without gpt-train's manifest; `gpt-train --manual exchange` has the lines that convert nanoGPT's"
               : "a ZIP archive, but gpt-train did not write it";
  }
  if (start.size() > 8 && start[8] == '{') return "a safetensors file, which holds weights but no training state";
  if (file.find_first_not_of('\0') == std::string_view::npos) {
    return "nothing but zeros: the machine went down while it was written";
  }
  std::transform(start.begin(), start.end(), start.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  const size_t first = std::min(start.find_first_not_of(" \t\r\n"), start.size());
  const std::string_view text = std::string_view(start).substr(first);
  if (text.starts_with("<!doctype html") || text.starts_with("<html"))
    return "an HTML page, such as a download that failed leaves";
  return "not a checkpoint of gpt-train";
}

}  // namespace

struct ContainerReader::Impl {
  std::string path;
  MappedFile map;
  std::span<const std::byte> bytes = map.bytes();
  std::vector<zip::Entry> entries = {};
  std::map<std::string, size_t, std::less<>> records = {};  // their numbers among the entries
  std::optional<Manifest> manifest = {};
  std::vector<char> is_verified = {};  // each piece

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ExitCode::checkpoint, fmt::format("{} is {}", path, what));
  }
  [[noreturn]] void refuse_cut(uint64_t needed) const;
  std::optional<int> ending_version() const;
  int identify() const;
  uint64_t walk();
  void check_ending(int version, uint64_t offset) const;
  void take_manifest(int version);
  std::span<const std::byte> data(size_t record) const {
    return bytes.subspan(data_offset(entries[record]), entries[record].size);
  }
  size_t find(std::string_view name) const;
  void verify(size_t record, uint64_t begin, uint64_t end);
  void verify(size_t record) { verify(record, 0, entries[record].size); }
};

// The format version named at the end of the file; none if it has no such ending.
std::optional<int> ContainerReader::Impl::ending_version() const {
  constexpr size_t kSearched = 256;
  const std::string_view file = as_text(bytes);
  const std::string_view end = file.substr(file.size() - std::min(file.size(), kSearched));
  const size_t mark = end.rfind(kFormat);
  if (mark == std::string_view::npos) return std::nullopt;
  const std::string_view text = end.substr(std::min(end.size(), mark + kFormat.size() + 1));
  int version = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), version).ec != std::errc()) return std::nullopt;
  return version;
}

// The headers claim more bytes than there are: the end is missing or, if it is present, a header is wrong.
void ContainerReader::Impl::refuse_cut(uint64_t needed) const {
  if (ending_version()) refuse("damaged: its headers claim more bytes than it has");
  refuse(
      fmt::format("truncated: it has {} of at least {} bytes; copy it again or use another one", bytes.size(), needed));
}

// The version of its format. One whose end is missing counts as the newest: it is refused for that.
int ContainerReader::Impl::identify() const {
  if (bytes.empty()) refuse("empty");
  const auto version = ending_version();
  if (version && (*version < kOldestVersion || *version > kVersion)) {
    refuse(fmt::format("in checkpoint format {} and this program reads formats {} to {}: use the version that wrote it",
                       *version, kOldestVersion, kVersion));
  }
  if (!version && !zip::read_local_header(bytes, 0)) refuse(what_it_is(as_text(bytes)));
  return version.value_or(kVersion);
}

// Collects the records, which follow one another from byte 0 up to the manifest; returns where that ends.
uint64_t ContainerReader::Impl::walk() {
  uint64_t offset = 0;
  do {
    auto entry = zip::read_local_header(bytes, offset);
    if (!entry && !ending_version()) refuse_cut(bytes.size() + 1);
    if (!entry || !entry->name.starts_with(kFolder) || !is_possible_name(name_of(*entry))) {
      refuse(fmt::format("damaged: the record's header at byte {} is wrong", offset));
    }
    const uint64_t start = data_offset(*entry);
    if (entry->size > bytes.size() - start) refuse_cut(start + entry->size);
    if (!records.emplace(name_of(*entry), entries.size()).second) {
      refuse(fmt::format("damaged: it has two records '{}'", shortened(name_of(*entry))));
    }
    offset = start + entry->size;
    entries.push_back(std::move(*entry));
  } while (name_of(entries.back()) != kManifest);
  return offset;
}

void ContainerReader::Impl::check_ending(int version, uint64_t offset) const {
  const std::string expected = ending_of(version, entries, as_text(data(entries.size() - 1)), offset);
  const std::string_view ending = as_text(bytes.subspan(offset));
  if (ending == expected) return;
  if (expected.starts_with(ending)) {
    refuse(fmt::format("truncated: it has {} of {} bytes; copy it again or use another one", bytes.size(),
                       offset + expected.size()));
  }
  if (ending.starts_with(expected)) {
    refuse(fmt::format("damaged: {} bytes follow its end", ending.size() - expected.size()));
  }
  const auto differing = std::mismatch(ending.begin(), ending.end(), expected.begin(), expected.end()).first;
  const size_t position = differing - ending.begin();
  if (position + kHashDigits >= expected.size()) refuse("damaged: its manifest or headers differ from their digest");
  refuse(fmt::format("damaged: its directory differs from its headers at byte {}", offset + position));
}

void ContainerReader::Impl::take_manifest(int version) {
  manifest.emplace(version, std::span(entries).first(entries.size() - 1));
  if (!manifest->take_hashes(as_text(data(entries.size() - 1))))
    refuse("damaged: its manifest does not match its records; copy it again or use another one");
  is_verified.resize(manifest->pieces().size());
}

size_t ContainerReader::Impl::find(std::string_view name) const {
  const auto found = records.find(name);
  if (found == records.end()) refuse(fmt::format("incomplete: it has no record '{}'", shortened(name)));
  return found->second;
}

// The pieces that have some of these bytes, and one without any.
void ContainerReader::Impl::verify(size_t record, uint64_t begin, uint64_t end) {
  if (record + 1 == entries.size()) return;  // the manifest, by the digest
  for (size_t i = manifest->first_piece(record); i < manifest->first_piece(record + 1); ++i) {
    const RecordPiece& piece = manifest->pieces()[i];
    const bool is_wanted = (piece.begin < end && begin < piece.end) || piece.begin == piece.end;
    if (!is_wanted || is_verified[i]) continue;
    if (hash128(as_text(data(record).subspan(piece.begin, piece.end - piece.begin))) == manifest->hash(i)) {
      is_verified[i] = 1;
      continue;
    }
    refuse(fmt::format("damaged: record '{}' differs from its hash; copy it again or use another one",
                       shortened(name_of(entries[record]))));
  }
}

ContainerReader::ContainerReader(const std::string& path)
    : impl_(new Impl{path, MappedFile(path, ExitCode::checkpoint)}) {
  const int version = impl_->identify();
  impl_->check_ending(version, impl_->walk());
  impl_->take_manifest(version);
}

ContainerReader::~ContainerReader() = default;

void ContainerReader::verify() const {
  for (size_t i = 0; i < impl_->entries.size(); ++i) impl_->verify(i);
}

bool ContainerReader::has(std::string_view name) const { return impl_->records.contains(name); }

std::span<const std::byte> ContainerReader::record(std::string_view name) const { return record(name, 0, size(name)); }

uint64_t ContainerReader::size(std::string_view name) const { return impl_->entries[impl_->find(name)].size; }

std::span<const std::byte> ContainerReader::record(std::string_view name, uint64_t begin, uint64_t end) const {
  const size_t record = impl_->find(name);
  impl_->verify(record, begin, end);
  return impl_->data(record).subspan(begin, end - begin);
}

std::string_view ContainerReader::text(std::string_view name) const { return as_text(record(name)); }

std::vector<std::string> ContainerReader::names() const {
  std::vector<std::string> names;
  for (const zip::Entry& entry : impl_->entries) names.emplace_back(name_of(entry));
  return names;
}

}  // namespace gpt::container
