#include "gpt/core/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace gpt {
namespace {

// Three digits or more; `value` is below 1,000 unless no larger unit is there.
std::string scaled(double value) { return fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0); }

}  // namespace

std::string format_count(double value) {
  if (value < 999.5) return fmt::format("{:.0f}", value);
  if (value < 999.95e3) return fmt::format("{:.1f}k", value / 1e3);
  constexpr std::string_view kSuffixes = "MGTPE";
  size_t suffix = 0;
  value /= 1e6;
  while (value >= 999.995 && suffix + 1 < kSuffixes.size()) value /= 1e3, ++suffix;
  return fmt::format("{:.2f}{}", value, kSuffixes[suffix]);
}

std::string format_flops(double flops) {
  std::string text = format_count(flops);
  text.insert(std::min(text.find_first_not_of("0123456789."), text.size()), " ");
  return text + "FLOP";
}

std::string format_perplexity(double value) {
  if (value >= 999.5 && value < 1e6) return with_commas(std::llround(value));
  return value < 1e6 ? fmt::format("{:.2f}", value) : fmt::format("{:.2e}", value);
}

std::string format_bytes(double bytes) {
  if (bytes < 999.5) return plural(std::llround(bytes), "byte");
  constexpr const char* kUnits[] = {"kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  bytes /= 1e3;
  while (bytes >= 999.5 && unit + 1 < std::size(kUnits)) bytes /= 1e3, ++unit;
  return fmt::format("{} {}", scaled(bytes), kUnits[unit]);
}

std::string format_duration(double seconds) {
  constexpr double kYear = 365.25 * 86400;
  if (seconds >= kYear) return fmt::format("{} years", format_number(seconds / kYear));
  const auto total = static_cast<int64_t>(std::llround(seconds));
  if (total < 60) return fmt::format("{}s", total);
  if (total < 3600) return fmt::format("{}m{:02}s", total / 60, total % 60);
  if (total < 86400) return fmt::format("{}h{:02}m", total / 3600, total / 60 % 60);
  return fmt::format("{}d{:02}h", total / 86400, total / 3600 % 24);
}

std::string format_short_duration(double seconds) {
  if (seconds < 1) return format_number(1e3 * seconds) + " ms";
  return seconds < 10 ? format_number(seconds) + " s" : format_duration(seconds);
}

std::string with_commas(int64_t value) {
  std::string digits = std::to_string(value);
  const int64_t first = value < 0 ? 1 : 0;
  for (int64_t at = std::ssize(digits) - 3; at > first; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string enumerated(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

std::string plural(int64_t count, std::string_view noun) {
  const bool sounds_like_k = noun.ends_with("epoch");
  const bool takes_es =
      (noun.ends_with("ch") && !sounds_like_k) || noun.ends_with("sh") || noun.ends_with("s") || noun.ends_with("x");
  return fmt::format("{} {}{}", with_commas(count), noun, count == 1 ? "" : takes_es ? "es" : "s");
}

std::string nearest_multiples(int64_t value, int64_t divisor) {
  const int64_t below = value / divisor * divisor, above = below + divisor;
  return below > 0 ? fmt::format("{} or {}", below, above) : fmt::format("{}", above);
}

std::string format_number(double value) {
  if (value == 0) return "0";
  if (std::abs(value) >= 999.5) return with_commas(std::llround(value));
  const int before_point = static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1;
  std::string text = fmt::format("{:.{}f}", value, std::max(0, 3 - before_point));
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string wrap_text(std::string_view text, int columns, int indent) {
  if (columns <= 0) return std::string(text);
  std::string result;
  int width = 0;           // width of the line so far, in characters
  size_t space = 0;        // where the line can be broken, in the result
  int width_to_space = 0;  // 0: nowhere
  for (const char c : text) {
    if (c == '\n') {
      width = width_to_space = 0;
    } else {
      const bool is_character = (static_cast<unsigned char>(c) & 0xc0) != 0x80;  // not a further byte of one
      if (c == ' ' && width > indent) space = result.size(), width_to_space = width + 1;
      width += is_character;
    }
    result += c;
    if (width <= columns || width_to_space == 0 || c == ' ') continue;
    size_t end = space;
    while (end > 0 && result[end - 1] == ' ') --end;
    result.replace(end, space + 1 - end, '\n' + std::string(static_cast<size_t>(indent), ' '));
    width += indent - std::exchange(width_to_space, 0);
  }
  return result;
}

std::string format_bar(double share, int width) {
  const int full = std::clamp(static_cast<int>(share * width), 0, width);
  std::string cells(static_cast<size_t>(full), '=');
  if (full < width) cells += '>';
  return fmt::format("[{:<{}}]", cells, width);
}

}  // namespace gpt
