#include "gpt/prepare/prepare_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bin_writer.h"
#include "conversation_report.h"
#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/data/bin.h"
#include "gpt/data/corpus.h"

namespace gpt::prepare {
namespace {

constexpr int kBarWidth = 20;

// In the output folder, by their paths.
std::vector<std::string> written_files(BinFormat format, const std::string& output_dir,
                                       const data::Metadata& metadata) {
  std::vector<std::string> files;
  for (const std::string& name : BinWriter::file_names(format)) files.push_back(output_dir + "/" + name);
  if (!metadata.conversations.shape.empty()) files.push_back(output_dir + "/" + data::kMarksFile);
  files.push_back(output_dir + "/" + data::kTokenizerFile);
  if (format == BinFormat::prepared) files.push_back(output_dir + "/" + data::kMetadataFile);
  return files;
}

void report_prepared_conversations(const PrepareOptions& options, const std::string& output_dir) {
  const data::Bin bin = data::open_bin({.path = output_dir + "/" + data::kBinFile, .is_prepared = true});
  data::Corpus corpus;
  corpus.tokenizer = bin.tokenizer, corpus.train = bin.train;
  corpus.source = fmt::format("{}", fmt::join(options.inputs, " "));
  report_conversations(corpus, bin.metadata);
}

}  // namespace

std::string describe_files(const data::Metadata& metadata) {
  const auto read = static_cast<int64_t>(metadata.sources.size()),
             passed_over = static_cast<int64_t>(metadata.skipped.size());
  std::vector<std::string> facts;
  if (read != 1 || passed_over > 0) facts.push_back(plural(read, "file") + " read");
  if (passed_over > 0) facts.back() += fmt::format(", {} passed over", with_commas(passed_over));
  if (metadata.crlf_files > 0) {
    facts.push_back(plural(metadata.crlf_files, "file") + " had Windows line ends (CRLF), which became LF");
  }
  if (metadata.cr_files > 0) {
    facts.push_back(plural(metadata.cr_files, "file") + " had the line ends of old Macs (CR), which became LF");
  }
  if (metadata.byte_order_mark_files > 0) {
    facts.push_back(plural(metadata.byte_order_mark_files, "file") +
                    " began with a UTF-8 byte-order mark, which was dropped");
  }
  if (metadata.replaced_characters > 0) {
    facts.push_back(plural(metadata.replaced_characters, "character") +
                    " of JSON lines that Unicode does not have became U+FFFD");
  }
  for (const auto& [line, count] : metadata.separators) {
    facts.push_back(fmt::format("{} of {} {} documents and {} no text (document_separator: none keeps them)",
                                plural(count, "line"), line, count == 1 ? "separates" : "separate",
                                count == 1 ? "is" : "are"));
  }
  return fmt::format("{}", fmt::join(facts, "; "));
}

void warn_of_ends_as_text(const data::Metadata& metadata) {
  if (metadata.ends_as_text == 0) return;
  log::warn(fmt::format(
      "the text has the letters of an end of text, such as <|endoftext|>, {}, and they are learned as letters; "
      "gpt-prepare --parse-special-tokens makes them the special token",
      metadata.ends_as_text == 1 ? "once" : with_commas(metadata.ends_as_text) + " times"));
}

bool PrepareReport::operator()(const PrepareProgress& progress) {
  if (process::stop_signal() != 0) return false;
  const Clock::time_point now = Clock::now();
  if (stage_ != progress.stage) {
    stage_ = progress.stage;
    begin_ = now;
    next_ = now + std::chrono::seconds(log::is_terminal() ? 1 : 10);
  }
  if (now < next_) return true;
  const std::string line = progress_line(progress, std::chrono::duration<double>(now - begin_).count());
  if (log::is_terminal()) {
    log::status(line);
    next_ = now + std::chrono::milliseconds(100);
  } else {
    log::info(line);
    next_ = now + std::chrono::seconds(30);
  }
  return true;
}

ReadingReport::ReadingReport(const char* stage, std::string what, uint64_t total_bytes)
    : stage_(stage), what_(std::move(what)), total_(total_bytes) {}

ReadingReport::~ReadingReport() { log::status(""); }

void ReadingReport::reached(uint64_t bytes) {
  if (!report_({stage_, bytes, total_}))
    throw Error(ExitCode::interrupted, fmt::format("interrupted while {} {}", stage_, what_));
}

std::string progress_line(const PrepareProgress& progress, double seconds) {
  const double done = static_cast<double>(progress.done), total = static_cast<double>(progress.total);
  const double rate = seconds > 0 ? done / seconds : 0;
  std::string line = progress.stage;
  if (total > 0)
    line += fmt::format(" {} {:.0f}%", format_bar(done / total, kBarWidth), std::floor(100 * done / total));
  if (progress.in_bytes) {
    line += fmt::format(", {:.1f} MB, {:.1f} MB/s", done / 1e6, rate / 1e6);
  } else {
    line += fmt::format(", {} merges", with_commas(static_cast<int64_t>(progress.done)));
  }
  if (total > 0 && rate > 0) line += fmt::format(", {} left", format_duration(std::ceil((total - done) / rate)));
  return line;
}

void report_prepared(const PrepareOptions& options, const std::string& output_dir, const data::Metadata& metadata) {
  const auto& [train, validation] = std::pair(metadata.train, metadata.validation);
  const int64_t tokens = train.tokens + validation.tokens, bytes = train.bytes + validation.bytes;
  log::status("");
  if (const std::string files = describe_files(metadata); !files.empty()) log::info(files);
  warn_of_ends_as_text(metadata);
  if (metadata.invalid_utf8_bytes > 0) {
    log::warn(fmt::format("{} of the text {}", plural(metadata.invalid_utf8_bytes, "byte"),
                          metadata.invalid_utf8_bytes == 1 ? "is not valid UTF-8 and is kept as it is"
                                                           : "are not valid UTF-8 and are kept as they are"));
  }
  if (metadata.repeated_documents > 0) {
    const bool near = options.deduplicate == Deduplicate::near;
    log::info(fmt::format("{} left out, because an earlier one {}", plural(metadata.repeated_documents, "document"),
                          near ? fmt::format("has the same words (a similarity of {} or more; --deduplicate near)",
                                             kNearThreshold)
                               : "is the same (--deduplicate exact)"));
  }
  const bool has_conversations = !metadata.conversations.shape.empty();
  if (has_conversations) {
    report_prepared_conversations(options, output_dir);
  } else {
    log::info(fmt::format("{} and {} of text: {} from a vocabulary of {}, {:.2f} bytes per token",
                          plural(train.documents + validation.documents, "document"), plural(bytes, "byte"),
                          plural(tokens, "token"), with_commas(metadata.vocab_size),
                          static_cast<double>(bytes) / static_cast<double>(tokens)));
  }
  if (validation.tokens > 0) {
    log::info(fmt::format("{} to train on, {} for validation {}", plural(train.tokens, "token"),
                          with_commas(validation.tokens),
                          metadata.split == "documents"
                              ? fmt::format("({} of the {})", with_commas(validation.documents),
                                            has_conversations ? "conversations" : "documents")
                              : "(the end of the text, since there are too few documents to hold some out)"));
  }
  const std::string folder = output_dir + "/";
  log::success(fmt::format("{}", fmt::join(written_files(options.format, output_dir, metadata), ", ")));
  if (options.format != BinFormat::prepared) {
    return log::info(
        fmt::format("Next: gpt-train --data.bin {0}train.bin --data.validation_bin {0}val.bin --data.tokenizer {0}{1}",
                    folder, data::kTokenizerFile));
  }
  const std::string model = options.saved_tokenizer.empty() ? "" : fmt::format("--init_from {} ", options.tokenizer);
  log::info(fmt::format("Next: gpt-train {3}--data.bin {0}{1} --data.metadata {0}{2}", folder, data::kBinFile,
                        data::kMetadataFile, model));
}

std::string prepared_json(const PrepareOptions& options, const std::string& output_dir,
                          const data::Metadata& metadata) {
  using nlohmann::ordered_json;
  const ordered_json object{{"files", written_files(options.format, output_dir, metadata)},
                            {"metadata", ordered_json::parse(to_json(metadata))}};
  return object.dump(2, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace gpt::prepare
