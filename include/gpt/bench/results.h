// What gpt-bench leaves behind: a table for people, on the terminal and as Markdown, JSON for programs, and a chart.
#pragma once

#include <cstdint>
#include <string>

#include "gpt/bench/findings.h"
#include "gpt/bench/rung.h"
#include "gpt/device/device.h"

namespace gpt::bench {

// What figures depend on beside the configuration.
struct Machine {
  std::string cpu, system;  // "Debian GNU/Linux 12 (bookworm), Linux 6.1.0"
  int64_t memory_bytes = 0;
  int64_t cores = 0, cpu_threads = 0;  // how many the machine has; no cores: Linux does not say
  std::string driver, cudnn;           // where the device is a GPU
};

Machine this_machine(at::Device device);

struct BenchResults {
  std::string title;    // "ladder", "ops" or another command
  std::string command;  // as it was typed
  std::string date;     // "2026-11-22T20:45:00Z"
  device::DeviceInfo device;
  Machine machine;
  Wanted wanted;
  Findings findings;
};

std::string to_markdown(const BenchResults& results);
std::string to_plain_text(const BenchResults& results, int columns);  // for a terminal
std::string to_json(const BenchResults& results);
// A bar for each row, with what was measured on what, in the colours that its reader prefers.
std::string to_svg(const BenchResults& results);

// Writes FOLDER/TITLE-DATE.{md,json,svg}, creating the folder; returns the path without its ending.
std::string write_results(const BenchResults& results, const std::string& folder);

}  // namespace gpt::bench
