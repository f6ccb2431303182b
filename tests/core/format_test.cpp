#include "gpt/core/format.h"

#include <gtest/gtest.h>

namespace gpt {
namespace {

TEST(Format, CountsHaveASuffix) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(999.6), "1.0k");
  EXPECT_EQ(format_count(12'345), "12.3k");
  EXPECT_EQ(format_count(999'960), "1.00M");
  EXPECT_EQ(format_count(1.2e6), "1.20M");
  EXPECT_EQ(format_count(3.4e9), "3.40G");
  EXPECT_EQ(format_count(1.5e13), "15.00T");
  EXPECT_EQ(format_count(7.01e15), "7.01P");
}

TEST(Format, FlopsHaveTheirSuffixWithTheUnit) {
  EXPECT_EQ(format_flops(950), "950 FLOP");
  EXPECT_EQ(format_flops(12'345), "12.3 kFLOP");
  EXPECT_EQ(format_flops(12.25e9), "12.25 GFLOP");
}

TEST(Format, AnAbsurdPerplexityIsReadable) {
  EXPECT_EQ(format_perplexity(4.6), "4.60");
  EXPECT_EQ(format_perplexity(999.4), "999.40");
  EXPECT_EQ(format_perplexity(48'272.29), "48,272");
  EXPECT_EQ(format_perplexity(999'999), "999,999");
  EXPECT_EQ(format_perplexity(2.6e58), "2.60e+58");
}

TEST(Format, BytesNeverVanish) {
  EXPECT_EQ(format_bytes(0), "0 bytes");
  EXPECT_EQ(format_bytes(1), "1 byte");
  EXPECT_EQ(format_bytes(512), "512 bytes");
  EXPECT_EQ(format_bytes(3210), "3.21 kB");
  EXPECT_EQ(format_bytes(45.6e6), "45.6 MB");
  EXPECT_EQ(format_bytes(999.7e6), "1.00 GB");
  EXPECT_EQ(format_bytes(137e9), "137 GB");
  EXPECT_EQ(format_bytes(4.2e19), "42000 PB");
}

TEST(Format, DurationsTakeTheUnitThatFits) {
  EXPECT_EQ(format_duration(41.6), "42s");
  EXPECT_EQ(format_duration(187), "3m07s");
  EXPECT_EQ(format_duration(7500), "2h05m");
  EXPECT_EQ(format_duration(3 * 86400 + 4 * 3600), "3d04h");
  EXPECT_EQ(format_duration(1e9), "31.7 years");
  EXPECT_EQ(format_duration(1e12), "31,688 years");
}

TEST(Format, NumbersHaveNoExponent) {
  EXPECT_EQ(format_number(0), "0");
  EXPECT_EQ(format_number(0.00003), "0.00003");
  EXPECT_EQ(format_number(0.01234), "0.0123");
  EXPECT_EQ(format_number(0.5), "0.5");
  EXPECT_EQ(format_number(2), "2");
  EXPECT_EQ(format_number(12.34), "12.3");
  EXPECT_EQ(format_number(100), "100");
  EXPECT_EQ(format_number(5000), "5,000");
}

TEST(Format, NounsFollowTheirCount) {
  EXPECT_EQ(plural(1, "layer"), "1 layer");
  EXPECT_EQ(plural(0, "layer"), "0 layers");
  EXPECT_EQ(plural(1, "batch"), "1 batch");
  EXPECT_EQ(plural(2000, "batch"), "2,000 batches");
  EXPECT_EQ(plural(3, "epoch"), "3 epochs");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(with_commas(-123), "-123");
}

TEST(Format, BarsFillFromLeftToRight) {
  EXPECT_EQ(format_bar(0, 4), "[>   ]");
  EXPECT_EQ(format_bar(0.5, 4), "[==> ]");
  EXPECT_EQ(format_bar(1, 4), "[====]");
  EXPECT_EQ(format_bar(7, 4), "[====]");
}

TEST(Format, ShortDurationsHaveFractions) {
  EXPECT_EQ(format_short_duration(0.00957), "9.57 ms");
  EXPECT_EQ(format_short_duration(0.0943), "94.3 ms");
  EXPECT_EQ(format_short_duration(6.25), "6.25 s");
  EXPECT_EQ(format_short_duration(61), "1m01s");
}

TEST(Format, LinesBreakAtSpacesAndGoOnIndented) {
  EXPECT_EQ(wrap_text("one two three", 0, 2), "one two three") << "not for a terminal";
  EXPECT_EQ(wrap_text("one two three", 13, 2), "one two three");
  EXPECT_EQ(wrap_text("one two three", 12, 2), "one two\n  three");
  EXPECT_EQ(wrap_text("one two three", 7, 2), "one two\n  three");
  EXPECT_EQ(wrap_text("one two three", 6, 2), "one\n  two\n  three");
  EXPECT_EQ(wrap_text("one two\nthree four five", 10, 1), "one two\nthree four\n five") << "each line by itself";
}

TEST(Format, WordsAreWhole) {
  EXPECT_EQ(wrap_text("a /path/of/a/long/file b", 8, 0), "a\n/path/of/a/long/file\nb");
  EXPECT_EQ(wrap_text("pass  CPU  8 cores", 10, 11), "pass  CPU  8\n           cores") << "nor does a label break";
  EXPECT_EQ(wrap_text("größer mögen", 12, 0), "größer mögen") << "characters count, not bytes";
}

TEST(NearestMultiples, AreOnBothSidesUnlessOneIsZero) {
  EXPECT_EQ(nearest_multiples(8, 3), "6 or 9");
  EXPECT_EQ(nearest_multiples(2, 3), "3");
  EXPECT_EQ(nearest_multiples(7, 4), "4 or 8");
}

}  // namespace
}  // namespace gpt
