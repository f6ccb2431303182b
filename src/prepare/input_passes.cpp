#include "input_passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "byte_stream.h"
#include "conversation_input.h"
#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/tokenizer/utf8.h"

namespace gpt::prepare {
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

// Names the first of the files whose content is not what their names say.
void tell_apart(const std::vector<std::string>& disagreements) {
  if (disagreements.empty()) return;
  const size_t more = disagreements.size() - 1;
  log::info(fmt::format("{}, whatever its name says, and is read as such{}", disagreements[0],
                        more == 0 ? "" : fmt::format("; so {} {} more", more == 1 ? "is" : "are", more)));
}

// Names the first of the files that have markup of a kind.
void warn_of(const std::vector<Markup>& markups) {
  std::map<std::string_view, std::vector<const Markup*>> kinds;
  for (const Markup& markup : markups) kinds[markup.what].push_back(&markup);
  for (const auto& [what, files] : kinds) {
    const size_t more = files.size() - 1;
    const std::string others = more == 0 ? "" : fmt::format(" (and so {} {} more)", more == 1 ? "is" : "are", more);
    log::warn(fmt::format("{} {}{}; take the text out first: {}", files[0]->file, what, others, files[0]->remedy));
  }
}

}  // namespace

InputPasses::InputPasses(const PrepareOptions& options, const std::string& folder,
                         std::function<void(const PrepareProgress&)> report)
    : options_(options),
      folder_(folder),
      report_(std::move(report)),
      list_(find_sources(options.inputs, folder, options.cache_dir)) {
  if (options.chat_format) conversations_ = conversations_in(list_.sources, options.text_field);
  announce(list_.left_out);
  warn_of(list_.passed_over, "");
}

bool InputPasses::is_one_text() const {
  const Source& source = list_.sources.front();
  if (list_.sources.size() > 1 || source.stream || source.found || !separators_.empty()) return false;
  std::atomic<uint64_t> consumed = 0;
  return open_content(source, open_file(source, consumed, [] {})).kind == TextKind::plain;
}

void InputPasses::leave_out_repeated() {
  const Deduplicate how = options_.deduplicate;
  if (how == Deduplicate::none || list_.sources.empty() || is_one_text()) return;
  spool_streams();
  for (;;) {
    RepetitionFinder finder(how);
    std::vector<uint32_t> numbers;
    for (const Source& source : list_.sources) numbers.push_back(source.number);
    DocumentReader reader = this->reader(utf8::last_character);
    pass(
        "comparing documents", reader, [how](Chunk chunk) { return compared(std::move(chunk), how); },
        [&](const ComparedChunk& chunk) { finder.add(chunk, numbers); });
    if (must_repeat(reader)) continue;
    repeated_ = finder.repeated();
    return;
  }
}

void InputPasses::spool_streams() {
  for (Source& source : list_.sources) {
    if (!source.stream) continue;
    auto spool = std::make_unique<AtomicFile>(folder_ + "/standard_input");
    std::atomic<uint64_t> consumed = 0;
    const auto stream = open_file(source, consumed, [&] { report_({"reading", consumed, 0}); });
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
  return DocumentReader(list_.sources, {std::move(last_cut), options_.text_field, separators_, options_.max_chars,
                                        waiting, repeated_.count() > 0 ? &repeated_ : nullptr, conversations_});
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
  if (!std::exchange(said_what_files_hold_, true)) {
    tell_apart(reader.disagreements());
    warn_of(reader.markups());
  }
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

void InputPasses::describe(const DocumentReader& reader, data::Metadata& metadata) const {
  for (const Source& source : reader.used()) {
    const int64_t bytes =
        source.stream && list_.sources.size() == 1 ? static_cast<int64_t>(reader.consumed()) : source.bytes;
    metadata.sources.push_back({source.name, bytes});
  }
  for (const PassedOver& file : list_.passed_over) metadata.skipped.push_back(file.path);
  metadata.crlf_files = reader.crlf_files();
  metadata.json_files = reader.json_files();
  metadata.cr_files = reader.cr_files();
  metadata.separators = reader.separators();
  metadata.byte_order_mark_files = reader.byte_order_mark_files();
  metadata.repeated_documents = repeated_.count();
  metadata.replaced_characters = reader.replaced_characters();
}

}  // namespace gpt::prepare
