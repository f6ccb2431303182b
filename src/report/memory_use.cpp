#include "gpt/report/memory_use.h"

#include <fmt/format.h>

#include "gpt/core/format.h"

namespace gpt::report {

double MemoryUse::total() const {
  return weights + gradients + optimizer + teacher + data + activations + logits + workspace;
}

std::vector<std::pair<std::string, double>> MemoryUse::parts() const {
  std::vector<std::pair<std::string, double>> parts{{"weights", weights},
                                                    {"gradients", gradients},
                                                    {"optimizer", optimizer}};
  if (teacher > 0) parts.emplace_back("teacher", teacher);  // few runs have one
  parts.emplace_back("data", data);
  parts.emplace_back("activations", activations);
  if (logits > 0) parts.emplace_back("logits", logits);  // which nobody measures
  parts.emplace_back("workspace", workspace);
  return parts;
}

std::string to_text(const MemoryUse& use) {
  std::string text;
  for (const auto& [name, bytes] : use.parts()) {
    if (bytes > 0) text += fmt::format("{}{} {}", text.empty() ? ": " : ", ", name, format_bytes(bytes));
  }
  return format_bytes(use.total()) + text;
}

}  // namespace gpt::report
