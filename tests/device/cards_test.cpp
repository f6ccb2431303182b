#include "gpt/device/cards.h"

#include <gtest/gtest.h>

#include "gpt/core/error.h"

namespace gpt::device {
namespace {

std::string_view found(std::string_view name) {
  const Card* card = find_card(name);
  return card ? card->name : "";
}

TEST(FindCard, IsLenientAboutHowANameIsWritten) {
  for (const char* name : {"RTX 4080 SUPER", "rtx 4080 super", "4080 Super", "RTX4080 Super", "rtx4080super",
                           "geforce-rtx-4080-super", "NVIDIA GeForce RTX 4080 SUPER", "  RTX  4080SUPER 16GB "}) {
    EXPECT_EQ(found(name), "RTX 4080 SUPER") << name;
  }
  EXPECT_EQ(found("gtx1650ti"), "GTX 1650 Ti");
  EXPECT_EQ(found("Tesla T4"), "T4");
  EXPECT_EQ(found("a6000"), "RTX A6000");
  EXPECT_EQ(found("NVIDIA RTX 6000 Ada Generation"), "RTX 6000 Ada");
}

TEST(FindCard, MemoryAndFormTellCardsApartOnlyWhereTheyDiffer) {
  EXPECT_EQ(found("A100"), "A100 40GB");
  EXPECT_EQ(found("A100-SXM4-80GB"), "A100 80GB");
  EXPECT_EQ(found("NVIDIA A100 80GB PCIe"), "A100 80GB");
  EXPECT_EQ(found("H100"), "H100 SXM");
  EXPECT_EQ(found("NVIDIA H100 80GB HBM3"), "H100 SXM");
  EXPECT_EQ(found("H100 pcie 80gb"), "H100 PCIe");
  EXPECT_EQ(found("H200 SXM"), "H200");
  EXPECT_EQ(found("RTX 4060 Ti"), "RTX 4060 Ti");
  EXPECT_EQ(found("RTX 4060 Ti 16GB"), "RTX 4060 Ti 16GB");
  EXPECT_EQ(found("NVIDIA GH200 480GB"), "GH200 480GB");
  EXPECT_EQ(found("RTX 3090 48GB"), "") << "there is none";
}

TEST(FindCard, EveryCardIsFoundByItsOwnName) {
  for (const Card& card : all_cards()) {
    EXPECT_EQ(found(card.name), card.name);
    EXPECT_EQ(found("NVIDIA GeForce " + std::string(card.name)), card.name);
  }
}

// What holds of all of NVIDIA's cards: a wrong digit in the table shows.
TEST(Cards, TheirNumbersAreOfOneKind) {
  for (const Card& card : all_cards()) {
    SCOPED_TRACE(card.name);
    const bool is_ampere = card.capability >= 80;
    EXPECT_EQ(card.bfloat16 > 0, is_ampere);
    EXPECT_EQ(card.tf32 > 0, is_ampere);
    EXPECT_GE(card.float16, card.float32);
    if (is_ampere) {
      EXPECT_EQ(card.bfloat16, card.float16);
      EXPECT_NEAR(card.bfloat16 / card.tf32, 2, 0.05);
    }
    const bool is_geforce =
        is_ampere && card.name.starts_with("RTX") && card.name.find("6000") == std::string_view::npos;
    if (is_geforce) { EXPECT_NEAR(card.bfloat16 / card.float32, 2, 0.02); }
    // Every generation has between 1 and 6 bytes of bandwidth for 1,000 FLOPs of 16 bits.
    const double bytes_per_flop = card.bandwidth / card.float16;
    EXPECT_GE(bytes_per_flop, 2);
    EXPECT_LE(bytes_per_flop, 64);
  }
}

TEST(Cards, AreDescribedLikeADeviceThatIsHere) {
  const DeviceInfo t4 = find_card("T4")->describe(), l4 = find_card("L4")->describe();
  EXPECT_TRUE(t4.device.is_cuda());
  EXPECT_TRUE(t4.float16);
  EXPECT_FALSE(t4.bfloat16);
  EXPECT_TRUE(l4.bfloat16);
  EXPECT_EQ(l4.compute_major, 8);
  EXPECT_EQ(l4.compute_minor, 9);
  EXPECT_EQ(t4.memory_bytes, 15 * (int64_t{1} << 30)) << "as its driver says, with error correction";
}

TEST(RequireCard, AnUnknownOneIsRefusedWithTheNearest) {
  try {
    (void)require_card("--gpu", "RTX 4085");
    FAIL();
  } catch (const Error& e) {
    const std::string what = e.what();
    EXPECT_EQ(e.code(), ExitCode::config);
    EXPECT_EQ(
        what.find(
            "--gpu: unknown card 'RTX 4085'; the nearest are RTX 4080, RTX 3080, RTX 4060; all: GTX 1650 Ti, RTX 3060, "),
        0)
        << what;
    EXPECT_EQ(what.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace gpt::device
