#include "gpt/core/process_memory.h"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>

namespace gpt::process_memory {
namespace {

struct Resident {
  int64_t own = 0;    // anonymous memory, and memory shared with other processes
  int64_t files = 0;  // pages of files, the program's code among them
};

Resident resident() {
  Resident result;
  std::ifstream in("/proc/self/status");
  std::string key;
  int64_t kilobytes = 0;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("Rss")) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    key = line.substr(0, colon);
    kilobytes = std::strtoll(line.c_str() + colon + 1, nullptr, 10);
    (key == "RssFile" ? result.files : result.own) += 1024 * kilobytes;
  }
  return result;
}

std::atomic<int64_t> code_bytes{-1};  // -1: no file has been mapped yet
std::atomic<int64_t> highest{0};

}  // namespace

int64_t bytes() {
  const Resident now = resident();
  const int64_t code = code_bytes;
  return now.own + (code < 0 ? now.files : std::min(code, now.files));
}

void sample() {
  const int64_t now = bytes();
  int64_t before = highest;
  while (now > before && !highest.compare_exchange_weak(before, now)) {}
}

int64_t peak() {
  sample();
  return highest;
}

void before_mapping() {
  int64_t none = -1;
  if (code_bytes == none) code_bytes.compare_exchange_strong(none, resident().files);
}

}  // namespace gpt::process_memory
