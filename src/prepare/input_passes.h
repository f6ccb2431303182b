// The input of a preparation, read once or twice: files that cannot be read are left out of every pass.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk_pipeline.h"
#include "document_reader.h"
#include "gpt/core/file.h"
#include "gpt/data/metadata.h"
#include "gpt/prepare/prepare_options.h"
#include "source_list.h"

namespace gpt::prepare {

class InputPasses {
 public:
  // `folder`: of the output. `report` may throw, which ends a pass. Says what find_sources() left out or passed over.
  InputPasses(const PrepareOptions& options, const std::string& folder,
              std::function<void(const PrepareProgress&)> report);

  const std::vector<Source>& sources() const { return list_.sources; }
  // Their shape, where the input is conversations and the options say how those become tokens.
  std::optional<chat::ConversationShape> conversations() const { return conversations_; }

  // The lines that stand between documents in text files, from the next reader on.
  void separate_by(std::vector<std::string> separators) { separators_ = std::move(separators); }

  // A pass over the input, so that documents which repeat others are left out of those that follow. Does nothing where the options
  // say so.
  void leave_out_repeated();

  // Keeps standard input in the folder for as long as this lives, so that it can be read twice.
  void spool_streams();

  DocumentReader reader(std::function<size_t(std::string_view)> last_cut);

  // Calls `work` on the chunks of the reader on all threads, and `take` on this one with the results, in their order.
  template <class Work, class Take>
  void pass(const char* stage, DocumentReader& reader, Work&& work, Take&& take) {
    const uint64_t total = known_bytes();
    for_each_chunk(reader, options_.threads, stop_, std::forward<Work>(work), std::forward<Take>(take),
                   [&] { report_({stage, reader.consumed(), total}); });
  }

  // Ask this after each pass. What the reader passed over is no longer part of the input; true where something had been
  // made of it already, so that the pass has to be repeated without it.
  bool must_repeat(const DocumentReader& reader);

  // The files and what was done to them, into the metadata. `reader`: that of the last pass.
  void describe(const DocumentReader& reader, data::Metadata& metadata) const;

 private:
  uint64_t known_bytes() const;
  bool is_one_text() const;  // a single document, which can repeat no other

  const PrepareOptions& options_;
  const std::string& folder_;
  const std::function<void(const PrepareProgress&)> report_;
  SourceList list_;
  std::optional<chat::ConversationShape> conversations_;
  std::vector<std::unique_ptr<AtomicFile>> spools_;  // never committed
  RepeatedDocuments repeated_;
  std::vector<std::string> separators_;
  bool said_what_files_hold_ = false;
  std::atomic<bool> stop_ = false;
};

}  // namespace gpt::prepare
