#include "input_passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "byte_stream.h"
#include "gpt/core/error.h"
#include "gpt/core/log.h"

namespace gpt {
namespace {

// Names the first of them, and why.
void warn_of(const std::vector<PassedOver>& files, std::string_view consequence) {
  if (files.empty()) return;
  constexpr size_t kNamed = 3;
  std::string reasons = files[0].why;
  for (size_t i = 1; i < std::min(files.size(), kNamed); ++i) reasons += "; " + files[i].why;
  if (files.size() > kNamed) reasons += fmt::format("; and {} more", files.size() - kNamed);
  log::warn(
      fmt::format("{} {} passed over: {}{}", files.size(), files.size() == 1 ? "file" : "files", reasons, consequence));
}

}  // namespace

InputPasses::InputPasses(const PrepareOptions& options, const std::string& folder,
                         std::function<void(const PrepareProgress&)> report)
    : options_(options), folder_(folder), report_(std::move(report)), list_(find_sources(options.inputs, folder)) {
  warn_of(list_.passed_over, "");
}

void InputPasses::spool_streams() {
  for (Source& source : list_.sources) {
    if (!source.stream) continue;
    auto spool = std::make_unique<AtomicFile>(folder_ + "/standard_input");
    std::atomic<uint64_t> consumed = 0;
    Source packed = source;
    packed.packing = Packing::none;
    const auto stream = open_source(packed, consumed, [&] { report_({"reading", consumed, 0}); });
    std::vector<char> block(1 << 16);
    while (const size_t count = stream->read(block.data(), block.size())) {
      spool->write(std::string_view(block.data(), count));
      report_({"reading", consumed, 0});
    }
    source.path = spool->unfinished_path();
    source.bytes = static_cast<int64_t>(spool->size());
    source.stream = false;
    spools_.push_back(std::move(spool));
  }
}

DocumentReader InputPasses::reader(std::function<size_t(std::string_view)> last_cut) {
  const auto waiting = [this] {
    if (stop_) throw Error(ExitCode::interrupted, "interrupted");
  };
  return DocumentReader(list_.sources, {std::move(last_cut), options_.text_field, options_.max_chars, waiting});
}

// 0 = not known.
uint64_t InputPasses::known_bytes() const {
  uint64_t total = 0;
  for (const Source& source : list_.sources) {
    if (source.stream) return 0;
    total += static_cast<uint64_t>(source.bytes);
  }
  return total;
}

bool InputPasses::must_repeat(const DocumentReader& reader) {
  if (reader.faults().empty()) return false;
  std::vector<Source> kept;
  std::vector<PassedOver> passed_over;
  bool repeat = false;
  for (uint32_t i = 0; i < list_.sources.size(); ++i) {
    const auto fault = reader.faults().find(i);
    if (fault == reader.faults().end()) {
      kept.push_back(list_.sources[i]);
    } else {
      repeat |= fault->second.handed_out;
      passed_over.push_back({list_.sources[i].name, fault->second.why});
    }
  }
  const auto is_stream = [](const Source& source) { return source.stream; };
  if (repeat && std::any_of(kept.begin(), kept.end(), is_stream)) throw Error(ExitCode::data, passed_over.front().why);
  warn_of(passed_over, repeat ? "; reading starts again, because some of this text had been used already" : "");
  list_.sources = std::move(kept);
  list_.passed_over.insert(list_.passed_over.end(), passed_over.begin(), passed_over.end());
  return repeat;
}

void InputPasses::describe(const DocumentReader& reader, Metadata& metadata) const {
  for (const Source& source : reader.used()) {
    const int64_t bytes =
        source.stream && list_.sources.size() == 1 ? static_cast<int64_t>(reader.consumed()) : source.bytes;
    metadata.sources.push_back({source.name, bytes});
  }
  for (const PassedOver& file : list_.passed_over) metadata.skipped.push_back(file.path);
  metadata.crlf_files = reader.crlf_files();
  metadata.byte_order_mark_files = reader.byte_order_mark_files();
}

}  // namespace gpt
