// What people see of prepare(): its progress and what came of it.
#pragma once

#include <chrono>
#include <string>

#include "gpt/data/prepare.h"

namespace gpt {

// A progress callback: a redrawn line on a terminal, now and then a line elsewhere. Asks to stop once a signal did.
class PrepareReport {
 public:
  bool operator()(const PrepareProgress& progress);

 private:
  using Clock = std::chrono::steady_clock;
  std::string stage_;
  Clock::time_point begin_, next_;
};

// "encoding [=====>    ] 52%, 98.1 MB/s, 14 s left"
std::string progress_line(const PrepareProgress& progress, double seconds);

// Counts, warnings and files, then the command to go on with.
void report_prepared(const PrepareOptions& options, const std::string& output_dir, const Metadata& metadata);

}  // namespace gpt
