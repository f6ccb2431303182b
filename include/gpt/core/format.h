// Numbers, sizes and durations as people read them: one style for every log line, progress bar and check.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpt {

std::string format_count(double value);       // 950, 12.3k, 1.20M, 3.40G; then T, P, E
std::string format_flops(double flops);       // 950 FLOP, 12.3 kFLOP, 3.40 GFLOP
std::string format_bytes(double bytes);       // 512 bytes, 3.2 kB, 1.20 MB, 45.6 GB; units of 1,000
std::string format_duration(double seconds);  // 42s, 3m07s, 2h05m, 3d04h, 1.2 years

// With fractions where they matter: 0.5 ms, 94.3 ms, 6.25 s; from ten seconds on like format_duration().
std::string format_short_duration(double seconds);

// With a comma between thousands: 1,234,567.
std::string with_commas(int64_t value);

// The count and its noun: "1 layer", "12 layers", "1 batch", "2,000 batches".
std::string plural(int64_t count, std::string_view noun);

std::string enumerated(const std::vector<std::string>& words);  // "a, b and c"

// The nearest multiples of `divisor` that are above 0, for a value that is none: "6 or 9", "3".
std::string nearest_multiples(int64_t value, int64_t divisor);

// Three digits, neither an exponent nor trailing zeros: 0.0123, 0.5, 12.3, 5,000.
std::string format_number(double value);

// Two digits after the point, none from a thousand on, an exponent above a million: 4.60, 48,272, 2.60e+58.
std::string format_perplexity(double value);

// The text with line breaks in place of spaces where a line would be longer than `columns` characters; lines that a break begins are
// indented. 0 columns: as it is. What has no spaces is not broken.
std::string wrap_text(std::string_view text, int columns, int indent);

// [=====>              ]: `share` of `width` cells.
std::string format_bar(double share, int width);

}  // namespace gpt
