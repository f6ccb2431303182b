// What gpt-bench leaves behind: a table for people, in the terminal and as Markdown, JSON for programs, and a chart.
#pragma once

#include <cstdint>
#include <string>

#include "gpt/bench/findings.h"
#include "gpt/config/config.h"
#include "gpt/device/device.h"

namespace gpt {

struct BenchResults {
  std::string title;    // "ladder", "ops" or another command
  std::string command;  // as it was typed
  std::string date;     // "2026-11-22T20:45:00Z"
  DeviceInfo device;
  int64_t threads = 0;
  Config config;  // what was asked for
  Findings findings;
};

std::string to_markdown(const BenchResults& results);
std::string to_json(const BenchResults& results);
// A bar for each row.
std::string to_svg(const BenchResults& results);

// Writes FOLDER/TITLE-DATE.{md,json,svg}, creating the folder; returns the path without its ending.
std::string write_results(const BenchResults& results, const std::string& folder);

}  // namespace gpt
