// What people see of prepare(): its progress and what came of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "gpt/data/metadata.h"
#include "gpt/prepare/prepare_options.h"

namespace gpt::prepare {

// A progress callback: a redrawn line on a terminal, now and then a line elsewhere, both for what takes longer than a moment.
// Asks to stop once a signal did.
class PrepareReport {
 public:
  bool operator()(const PrepareProgress& progress);

 private:
  using Clock = std::chrono::steady_clock;
  std::string stage_;
  Clock::time_point begin_, next_;
};

// The same for what a program reads before it begins. The line goes when this does.
class ReadingReport {
 public:
  ReadingReport(const char* stage, std::string what, uint64_t total_bytes);
  ~ReadingReport();
  ReadingReport(const ReadingReport&) = delete;
  ReadingReport& operator=(const ReadingReport&) = delete;
  void reached(uint64_t bytes);  // throws gpt::Error(interrupted) once a signal asked to stop

 private:
  PrepareReport report_;
  const char* stage_;
  const std::string what_;
  const uint64_t total_;
};

// "encoding [=====>    ] 52%, 98.1 MB/s, 14 s left"
std::string progress_line(const PrepareProgress& progress, double seconds);

// "40 files read, 2 passed over; 3 files had Windows line ends (CRLF), which became LF": empty for one file taken as it is.
std::string describe_files(const data::Metadata& metadata);

// Warns where the text of the end-of-text token was read as ordinary text.
void warn_of_ends_as_text(const data::Metadata& metadata);

// Counts, warnings and files, then the command to go on with.
void report_prepared(const PrepareOptions& options, const std::string& output_dir, const data::Metadata& metadata);

// {"files", "metadata"}: the paths of what was written, and what tokens_bpe_metadata.json has, in any format.
std::string prepared_json(const PrepareOptions& options, const std::string& output_dir, const data::Metadata& metadata);

}  // namespace gpt::prepare
