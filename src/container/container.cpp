#include "gpt/container/container.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

#include "gpt/container/zip.h"
#include "gpt/core/file.h"
#include "gpt/core/hash.h"

namespace gpt {
namespace {

constexpr std::string_view kFolder = "archive/";  // torch.load requires all records in one folder, of any name
constexpr std::string_view kManifest = "manifest.json";
constexpr std::string_view kFormat = "gpt-train checkpoint";
constexpr int kVersion = 1;
constexpr size_t kHashDigits = 32;

struct Record {
  zip::Entry entry;
  std::string hash;
};

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string_view name_of(const zip::Entry& entry) { return std::string_view(entry.name).substr(kFolder.size()); }

// What a record may be called: the manifest and messages quote it as it is.
bool is_possible(std::string_view name) {
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
  constexpr size_t kLongestName = 1024;
  return !name.empty() && name.size() <= kLongestName && std::all_of(name.begin(), name.end(), is_plain);
}

// A name as messages quote it.
std::string shortened(std::string_view name) {
  constexpr size_t kLongest = 200;
  return name.size() <= kLongest ? std::string(name) : std::string(name.substr(0, kLongest)) + "...";
}

// Where a record whose local header is at `entry.offset` has its data.
uint64_t data_offset(const zip::Entry& entry) { return entry.offset + zip::local_header(entry).size(); }

// One line per record, so that the first line that differs names the damaged record.
std::string manifest_of(const std::vector<Record>& records) {
  std::string text = fmt::format(R"({{"format": "{}", "version": {}, "records": {{)", kFormat, kVersion);
  std::string_view separator = "\n";
  for (const Record& record : records) {
    text += fmt::format(R"({}"{}": {{"bytes": {}, "xxh3_128": "{}"}})", separator, name_of(record.entry),
                        record.entry.size, record.hash);
    separator = ",\n";
  }
  return text + "\n}}\n";
}

// The end of the file: the directory, and in its comment the digest of everything that the manifest does not cover.
std::string ending_of(const std::vector<zip::Entry>& entries, std::string_view manifest, uint64_t offset) {
  const std::string mark = fmt::format("{} {} ", kFormat, kVersion);
  std::string ending = zip::directory(entries, offset, mark.size() + kHashDigits);
  std::string covered;
  for (const zip::Entry& entry : entries) covered += zip::local_header(entry);
  covered.append(manifest).append(ending);
  return ending + mark + hash128(covered);
}

}  // namespace

struct ContainerWriter::Impl {
  AtomicFile file;
  std::vector<Record> records;
};

ContainerWriter::ContainerWriter(std::string path, uint64_t expected_bytes)
    : impl_(new Impl{AtomicFile(std::move(path), expected_bytes), {}}) {}

ContainerWriter::~ContainerWriter() = default;

void ContainerWriter::add(const std::string& name, std::span<const std::byte> bytes) {
  if (!is_possible(name)) throw std::invalid_argument("record name '" + name + "'");
  Record record{{std::string(kFolder) + name, impl_->file.size(), bytes.size(), zip::crc32(bytes)},
                hash128(as_text(bytes))};
  const auto same_name = [&](const Record& other) { return other.entry.name == record.entry.name; };
  if (std::any_of(impl_->records.begin(), impl_->records.end(), same_name)) {
    throw std::invalid_argument("two records '" + name + "'");
  }
  impl_->file.write(zip::local_header(record.entry));
  impl_->file.write(bytes);
  impl_->records.push_back(std::move(record));
}

void ContainerWriter::add(const std::string& name, std::string_view text) { add(name, std::as_bytes(std::span(text))); }

void ContainerWriter::commit() {
  const std::string manifest = manifest_of(impl_->records);
  add(std::string(kManifest), manifest);
  std::vector<zip::Entry> entries;
  for (const Record& record : impl_->records) entries.push_back(record.entry);
  impl_->file.write(ending_of(entries, manifest, impl_->file.size()));
  impl_->file.commit();
}

uint64_t ContainerWriter::bytes_written() const { return impl_->file.size(); }

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
      Known{"GGUF"sv, "a GGUF model, which is an export and cannot be trained further"sv},
      Known{"\x80\x02"sv, "a Python pickle, which is never opened because that would execute it"sv},
      Known{"\x80\x04"sv, "a Python pickle, which is never opened because that would execute it"sv},
  };
  for (const auto& [beginning, what] : kKnown) {
    if (start.starts_with(beginning)) return std::string(what);
  }
  if (start.starts_with("PK\x03\x04")) {
    return start.find("/data.pkl") != std::string::npos ? "a PyTorch file without gpt-train's manifest"
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
  std::map<std::string, std::span<const std::byte>, std::less<>> records = {};

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ExitCode::checkpoint, fmt::format("{} is {}", path, what));
  }
  [[noreturn]] void refuse_cut(uint64_t needed) const;
  std::optional<int> ending_version() const;
  void identify() const;
  uint64_t walk();
  void check_ending(uint64_t offset) const;
  void check_records() const;
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

void ContainerReader::Impl::identify() const {
  if (bytes.empty()) refuse("empty");
  const auto version = ending_version();
  if (version && *version != kVersion) {
    refuse(fmt::format("in checkpoint format {} and this program reads format {}: use the version that wrote it",
                       *version, kVersion));
  }
  if (!version && !zip::read_local_header(bytes, 0)) refuse(what_it_is(as_text(bytes)));
}

// Collects the records, which follow one another from byte 0 up to the manifest; returns where that ends.
uint64_t ContainerReader::Impl::walk() {
  uint64_t offset = 0;
  do {
    auto entry = zip::read_local_header(bytes, offset);
    if (!entry && !ending_version()) refuse_cut(bytes.size() + 1);
    if (!entry || !entry->name.starts_with(kFolder) || !is_possible(name_of(*entry))) {
      refuse(fmt::format("damaged: the record's header at byte {} is wrong", offset));
    }
    const uint64_t start = data_offset(*entry);
    if (entry->size > bytes.size() - start) refuse_cut(start + entry->size);
    if (!records.emplace(name_of(*entry), bytes.subspan(start, entry->size)).second) {
      refuse(fmt::format("damaged: it has two records '{}'", shortened(name_of(*entry))));
    }
    offset = start + entry->size;
    entries.push_back(std::move(*entry));
  } while (name_of(entries.back()) != kManifest);
  return offset;
}

void ContainerReader::Impl::check_ending(uint64_t offset) const {
  const std::string expected = ending_of(entries, as_text(records.find(kManifest)->second), offset);
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

void ContainerReader::Impl::check_records() const {
  std::vector<Record> found;
  for (const zip::Entry& entry : entries) {
    if (name_of(entry) != kManifest) found.push_back({entry, hash128(as_text(records.find(name_of(entry))->second))});
  }
  const std::string expected = manifest_of(found);
  const std::string_view manifest = as_text(records.find(kManifest)->second);
  if (manifest == expected) return;
  const auto differing = std::mismatch(manifest.begin(), manifest.end(), expected.begin(), expected.end()).second;
  const size_t line = std::count(expected.begin(), differing, '\n');
  if (line == 0 || line > found.size())
    refuse("damaged: its manifest does not match its records; copy it again or use another one");
  refuse(fmt::format("damaged: record '{}' differs from its hash; copy it again or use another one",
                     shortened(name_of(found[line - 1].entry))));
}

ContainerReader::ContainerReader(const std::string& path)
    : impl_(new Impl{path, MappedFile(path, ExitCode::checkpoint)}) {
  impl_->identify();
  impl_->check_ending(impl_->walk());
  impl_->check_records();
}

ContainerReader::~ContainerReader() = default;

bool ContainerReader::has(std::string_view name) const { return impl_->records.contains(name); }

std::span<const std::byte> ContainerReader::record(std::string_view name) const {
  const auto found = impl_->records.find(name);
  if (found == impl_->records.end()) impl_->refuse(fmt::format("incomplete: it has no record '{}'", shortened(name)));
  return found->second;
}

std::string_view ContainerReader::text(std::string_view name) const { return as_text(record(name)); }

std::vector<std::string> ContainerReader::names() const {
  std::vector<std::string> names;
  for (const zip::Entry& entry : impl_->entries) names.emplace_back(name_of(entry));
  return names;
}

}  // namespace gpt
