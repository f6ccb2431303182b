#include "gpt/prepare/input_list.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

#include "content.h"
#include "gpt/core/format.h"
#include "gpt/core/printable.h"
#include "gpt/core/text_table.h"
#include "json_lines.h"
#include "source_list.h"

namespace gpt {
namespace {

// What a file is passed over for further in is found when it is read.
constexpr size_t kLookedThrough = 1 << 16;

void require_documents(const Source& source, const Content& content, const std::string& field) {
  if (content.kind != TextKind::json_lines) return;
  std::string_view lines = content.bytes->peek(kLookedThrough);
  lines.remove_prefix(content.byte_order_mark);
  if (lines.size() + content.byte_order_mark == kLookedThrough) lines = lines.substr(0, lines.rfind('\n') + 1);
  try {
    parse_json_lines(lines, field, {.position = 1}, source.name);
  } catch (const BadJsonLine& error) {
    if (!source.found) throw;
    throw UnreadableSource(source.name, error.what() + source.name.size() + 2);  // without the name, which comes first
  }
}

std::string how_it_is_read(const Source& source, const std::string& field) {
  if (source.stream) return describe(source.kind, source.packing);  // it can be read once
  std::atomic<uint64_t> consumed = 0;
  const Content content = open_content(source, open_file(source, consumed, [] {}));
  require_documents(source, content, field);
  return describe(content.kind, content.packing);
}

}  // namespace

std::string list_input(const PrepareOptions& options, const std::string& output_dir) {
  const SourceList list = find_sources(options.inputs, output_dir, options.cache_dir);
  TextTable read{{{TextColumn::right, 9}, {TextColumn::left, 24}, {}}};
  std::string passed_over;
  int64_t files = 0, bytes = 0, others = std::ssize(list.passed_over);
  for (const PassedOver& file : list.passed_over)
    passed_over += fmt::format("passed over: {}\n", printable_line(file.why));
  for (const Source& source : list.sources) {
    try {
      read.rows.push_back({source.stream ? "" : format_bytes(static_cast<double>(source.bytes)),
                           how_it_is_read(source, options.text_field), printable_line(source.name)});
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
  return result + fmt::format("{} to read, {}; {} passed over, {} left out\n", plural(files, "file"),
                              format_bytes(static_cast<double>(bytes)), others, list.left_out.size());
}

}  // namespace gpt
