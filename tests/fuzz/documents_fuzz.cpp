// A folder with a file of each kind, one of them hostile. One byte for the kind and the packing of that file and for how long
// it is: it is repeated until it is; then the file.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "expect.h"
#include "folder.h"
#include "src/prepare/content.h"
#include "src/prepare/document_reader.h"

namespace {

using namespace gpt;

constexpr std::string_view kGood = "A good text,\nbefore it and after it.\n";

struct Outcome {
  std::vector<std::string> documents;  // documents of each source that was not passed over
  std::vector<uint32_t> sources;
  bool is_passed_over = false;  // the hostile file
  bool operator==(const Outcome&) const = default;
};

// The documents put together from their parts, without those of files that were passed over.
Outcome read(const std::vector<prepare::Source>& sources) {
  prepare::DocumentReader::Options options;
  options.last_cut = [](std::string_view text) { return text.rfind(' ') + 1; };
  options.text_field = "text";
  prepare::DocumentReader reader(sources, std::move(options));
  Outcome outcome;
  while (std::optional<prepare::Chunk> raw = reader.next()) {
    const prepare::Chunk chunk = reader.parsed(std::move(*raw));
    size_t begin = 0;
    for (const prepare::DocumentPart& part : chunk.parts) {
      if (part.first) outcome.documents.emplace_back(), outcome.sources.push_back(part.source);
      fuzz::expect(!outcome.documents.empty() && part.end >= begin && part.end <= chunk.text.size(),
                   "a part of a document");
      outcome.documents.back() += chunk.text.substr(begin, part.end - begin);
      fuzz::expect(begin == part.end || !reader.place(chunk, begin).empty(), "a place for every text");
      begin = part.end;
    }
    fuzz::expect(begin == chunk.text.size(), "all text in documents");
  }
  for (size_t i = outcome.sources.size(); i-- > 0;) {
    if (!reader.faults().contains(outcome.sources[i])) continue;
    outcome.documents.erase(outcome.documents.begin() + static_cast<std::ptrdiff_t>(i));
    outcome.sources.erase(outcome.sources.begin() + static_cast<std::ptrdiff_t>(i));
  }
  outcome.is_passed_over = !reader.faults().empty();
  return outcome;
}

// What a text file's document is.
std::string with_unix_lines(std::string_view text) {
  std::string result;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r' || i + 1 == text.size() || text[i + 1] != '\n') result += text[i];
  }
  return result;
}

// Named, and by its content, text.
bool is_plain(const prepare::Source& source) {
  std::atomic<uint64_t> consumed = 0;
  if (source.kind != prepare::TextKind::plain || source.packing != prepare::Packing::none) return false;
  const prepare::Content content = open_content(source, open_file(source, consumed, [] {}));
  return content.kind == prepare::TextKind::plain && content.packing == prepare::Packing::none;
}

std::string repeated(std::string_view part, size_t size) {
  constexpr int kMost = 10000;  // short documents take long
  std::string text(part);
  for (int i = 1; i < kMost && text.size() < size; ++i) text += part;
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  static const prepare::Source good{.path = folder.write("good.txt", kGood), .name = "good.txt"};
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  if (rest.empty()) return 0;
  const auto kind = static_cast<unsigned char>(rest[0]);
  rest.remove_prefix(1);
  const std::string bytes = repeated(rest, kind & 16 ? 3 << 18 : 0);  // longer than a chunk

  prepare::Source hostile{.path = folder.write("hostile", bytes), .name = "hostile", .found = true};
  hostile.kind = kind & 1   ? prepare::TextKind::json_lines
                 : kind & 2 ? prepare::TextKind::wet
                            : prepare::TextKind::plain;
  hostile.packing = kind & 4 ? prepare::Packing::gzip : kind & 8 ? prepare::Packing::zstd : prepare::Packing::none;
  Outcome among_others, alone;
  const bool accepted = fuzz::accept_or_refuse([&] { among_others = read({good, hostile, good}); });
  fuzz::expect(fuzz::accept_or_refuse([&] { alone = read({hostile}); }) == accepted, "the same of the file alone");
  if (!accepted) return 0;
  fuzz::expect(among_others.is_passed_over == alone.is_passed_over, "the same of the file alone");
  std::vector<std::string> expected{std::string(kGood)};
  expected.insert(expected.end(), alone.documents.begin(), alone.documents.end());
  expected.emplace_back(kGood);
  fuzz::expect(among_others.documents == expected, "the same documents among others");
  if (!alone.is_passed_over && is_plain(hostile))
    fuzz::expect(alone.documents == std::vector{with_unix_lines(bytes)}, "the text of the file");
  return 0;
}
