// Lines of JSON.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "expect.h"
#include "src/prepare/json_lines.h"

namespace {

using namespace gpt;

prepare::Chunk parse(std::string_view lines, uint64_t line = 1) {
  return prepare::parse_json_lines(lines, "text", {.position = line}, "input").chunk;
}

// What another reader of JSON makes of the line that a document comes from.
void expect_text(std::string_view lines, uint64_t number, std::string_view text) {
  for (; number > 1; --number) lines.remove_prefix(lines.find('\n') + 1);
  const auto object = nlohmann::json::parse(lines.substr(0, lines.find('\n')), nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) return;  // as Python's json writes it
  fuzz::expect(object.at("text").get_ref<const std::string&>() == text, "the text of its line");
}

// Lines do not depend on those before them.
void expect_parts(std::string_view lines, const prepare::Chunk& whole) {
  const size_t cut = lines.find('\n', lines.size() / 2);
  if (cut == std::string_view::npos) return;
  const std::string_view first = lines.substr(0, cut + 1);
  const auto below = static_cast<uint64_t>(std::count(first.begin(), first.end(), '\n'));
  const prepare::Chunk head = parse(first), tail = parse(lines.substr(cut + 1), below + 1);
  fuzz::expect(head.text + tail.text == whole.text, "the same text from two halves");
  fuzz::expect(head.parts.size() + tail.parts.size() == whole.parts.size(), "the same documents from two halves");
  if (!tail.parts.empty())
    fuzz::expect(tail.parts.back().position == whole.parts.back().position, "the same lines from two halves");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view lines(reinterpret_cast<const char*>(data), size);
  fuzz::accept_or_refuse([&] {
    const prepare::Chunk chunk = parse(lines);
    size_t begin = 0;
    for (const prepare::DocumentPart& part : chunk.parts) {
      fuzz::expect(part.first && part.last && part.end > begin, "a whole document");
      expect_text(lines, part.position, std::string_view(chunk.text).substr(begin, part.end - begin));
      begin = part.end;
    }
    fuzz::expect(begin == chunk.text.size(), "all text in documents");
    expect_parts(lines, chunk);
  });
  return 0;
}
