#include "gpt/prepare/documents.h"

#include <fmt/format.h>

#include <utility>

#include "document_reader.h"
#include "gpt/core/error.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "source_list.h"

namespace gpt {
namespace {

std::vector<Source> named_sources(const std::vector<std::string>& inputs) {
  SourceList list = find_sources(inputs, /*output_dir=*/"");
  announce(list.left_out);
  if (!list.passed_over.empty()) throw Error(ExitCode::data, list.passed_over[0].why);
  for (Source& source : list.sources) source.found = false;
  return std::move(list.sources);
}

void stop_waiting() {
  if (process::stop_signal() != 0) throw Error(ExitCode::interrupted, "interrupted while reading");
}

}  // namespace

struct Documents::Reading {
  DocumentReader reader;
  Chunk chunk = {};
  size_t next = 0;           // part of the chunk
  size_t begin = 0;          // of the part that came last, in the chunk's text
  size_t disagreements = 0;  // those that were said
};

Documents::Documents(const std::vector<std::string>& inputs, const std::string& text_field,
                     std::function<size_t(std::string_view)> last_cut)
    : reading_(
          new Reading{.reader{named_sources(inputs),
                              {.last_cut = std::move(last_cut), .text_field = text_field, .waiting = stop_waiting}}}) {}

Documents::~Documents() = default;

std::optional<Documents::Piece> Documents::next() {
  Reading& r = *reading_;
  while (r.next == r.chunk.parts.size()) {
    std::optional<Chunk> chunk = r.reader.next();
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

}  // namespace gpt
