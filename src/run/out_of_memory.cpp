#include "gpt/run/out_of_memory.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "gpt/core/format.h"

namespace gpt::run {

double requested_bytes(std::string_view message) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{" bytes", 1},
                                                            {" KiB", 0x1p10},
                                                            {" MiB", 0x1p20},
                                                            {" GiB", 0x1p30}};
  for (const std::string_view before : {"a tensor of ", "tried to allocate ", "Tried to allocate "}) {
    const size_t place = message.find(before);
    if (place == std::string_view::npos) continue;
    const std::string_view rest = message.substr(place + before.size());
    double number = 0;
    const char* const end = std::from_chars(rest.data(), rest.data() + rest.size(), number).ptr;
    for (const auto& [unit, bytes] : kUnits) {
      if (rest.substr(static_cast<size_t>(end - rest.data())).starts_with(unit)) return number * bytes;
    }
  }
  return 0;
}

std::string to_text(const Shortage& shortage) {
  std::string text = "out of memory " + shortage.where;
  if (shortage.is_taken_by_others)
    return fmt::format("{}: other programs take it; {} was free when the run saw that, and it waited in vain", text,
                       format_bytes(shortage.free));
  if (shortage.requested > 0) text += fmt::format(": {} was requested", format_bytes(shortage.requested));
  // What the step held may be free again by now, and then the number would say nothing.
  if (shortage.free > 0 && shortage.free < shortage.requested)
    text += fmt::format(", and {} is free", format_bytes(shortage.free));
  return text;
}

}  // namespace gpt::run
