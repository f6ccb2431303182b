#include "gpt/prepare/documents.h"

#include <algorithm>
#include <utility>

#include "document_reader.h"
#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "separators.h"
#include "source_list.h"

namespace gpt::prepare {
namespace {

std::vector<Source> named_sources(const std::vector<std::string>& inputs) {
  SourceList list = find_sources(inputs, /*output_dir=*/"");
  announce(list.left_out);
  if (!list.passed_over.empty()) throw Error(ExitCode::data, list.passed_over[0].why);
  for (Source& source : list.sources) source.found = false;
  return std::move(list.sources);
}

double known_bytes(const std::vector<Source>& sources) {
  double bytes = 0;
  for (const Source& source : sources) {
    if (source.stream) return 0;
    bytes += static_cast<double>(source.bytes);
  }
  return bytes;
}

void stop_waiting() {
  if (process::stop_signal() != 0) throw Error(ExitCode::interrupted, "interrupted while reading");
}

}  // namespace

struct Documents::Reading {
  DocumentReader reader;
  double bytes;  // of the whole input; 0: not known
  Chunk chunk = {};
  double begun = 0, read = 0;  // bytes of the input before the chunk, and with it
  size_t next = 0;             // part of the chunk
  size_t begin = 0;            // of the part that came last, in the chunk's text
  size_t disagreements = 0;    // those that were said
};

Documents::Documents(const std::vector<std::string>& inputs, const std::string& text_field,
                     const tokenizer::Tokenizer& tokenizer, std::function<size_t(std::string_view)> last_cut) {
  std::vector<Source> sources = named_sources(inputs);
  const double bytes = known_bytes(sources);
  reading_.reset(new Reading{.reader{std::move(sources),
                                     {.last_cut = std::move(last_cut),
                                      .text_field = text_field,
                                      .separators = separators(kAutomaticSeparator, &tokenizer),
                                      .waiting = stop_waiting}},
                             .bytes = bytes});
}

Documents::~Documents() = default;

std::optional<Documents::Piece> Documents::next() {
  Reading& r = *reading_;
  while (r.next == r.chunk.parts.size()) {
    r.begun = static_cast<double>(r.reader.consumed());
    std::optional<Chunk> chunk = r.reader.next();
    r.read = static_cast<double>(r.reader.consumed());
    if (!chunk) return std::nullopt;
    r.chunk = r.reader.parsed(std::move(*chunk));
    r.next = 0;
    for (; r.disagreements < r.reader.disagreements().size(); ++r.disagreements)
      log::info(r.reader.disagreements()[r.disagreements] + ", whatever its name says, and is read as such");
  }
  const DocumentPart& part = r.chunk.parts[r.next];
  r.begin = r.next == 0 ? 0 : r.chunk.parts[r.next - 1].end;
  ++r.next;
  return Piece{r.chunk.text.substr(r.begin, part.end - r.begin), part.first, part.last};
}

std::string Documents::place(size_t offset) const {
  return reading_->reader.place(reading_->chunk, reading_->begin + offset);
}

double Documents::share() const {
  const Reading& r = *reading_;
  if (r.bytes == 0) return 0;
  const double end = r.next == 0 ? 0 : static_cast<double>(r.chunk.parts[r.next - 1].end);
  const double of_chunk = r.chunk.text.empty() ? 1 : end / static_cast<double>(r.chunk.text.size());
  return std::min(1.0, (r.begun + (r.read - r.begun) * of_chunk) / r.bytes);
}

}  // namespace gpt::prepare
