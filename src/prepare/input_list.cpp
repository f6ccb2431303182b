#include "gpt/prepare/input_list.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "content.h"
#include "gpt/core/format.h"
#include "source_list.h"

namespace gpt {
namespace {

std::string how_it_is_read(const Source& source) {
  if (source.stream) return describe(source.kind, source.packing);  // it can be read once
  std::atomic<uint64_t> consumed = 0;
  const Content content = open_content(source, open_file(source, consumed, [] {}));
  return describe(content.kind, content.packing);
}

std::string line(const std::string& size, const std::string& how, const std::string& name) {
  return fmt::format("{:>9}  {:<24}  {}\n", size, how, name);
}

}  // namespace

std::string list_input(const PrepareOptions& options, const std::string& output_dir) {
  const SourceList list = find_sources(options.inputs, output_dir, options.cache_dir);
  std::string read, passed_over;
  int64_t files = 0, bytes = 0, others = std::ssize(list.passed_over);
  for (const PassedOver& file : list.passed_over) passed_over += fmt::format("passed over: {}\n", file.why);
  for (const Source& source : list.sources) {
    try {
      read += line(source.stream ? "" : format_bytes(static_cast<double>(source.bytes)), how_it_is_read(source),
                   source.name);
      ++files, bytes += source.bytes;
    } catch (const UnreadableSource& error) {
      if (!source.found) throw;
      passed_over += fmt::format("passed over: {}\n", error.what());
      ++others;
    }
  }
  std::string result = read + passed_over;
  for (const LeftOut& entry : list.left_out)
    result += fmt::format("left out: {}: {}\n", entry.path, entry.what.empty() ? "it is hidden" : entry.what);
  return result + fmt::format("{} to read, {}; {} passed over, {} left out\n", plural(files, "file"),
                              format_bytes(static_cast<double>(bytes)), others, list.left_out.size());
}

}  // namespace gpt
