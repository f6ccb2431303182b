// How products are computed, kept for a run that goes on in another process.
#include "src/products/stored_choices.h"

#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace gpt::ops {
namespace {

const std::string kCard = "A card, cuBLASLt 130100";

std::vector<StoredChoice> some_choices() {
  const ProductKey plain{.rows = 65536,
                         .columns = 2304,
                         .inner = 768,
                         .type = at::kBFloat16,
                         .result_type = at::kFloat,
                         .a_transposed = true,
                         .b_transposed = false,
                         .adds = true,
                         .has_bias = false,
                         .has_gelu = false,
                         .has_gelu_slope = false,
                         .has_sums_of_a = true,
                         .alignment = 16};
  ProductKey other = plain;
  other.has_bias = true, other.a_transposed = false;
  return {{plain, "apart 33554432 1f 0"}, {other, std::nullopt}};
}

TEST(StoredChoices, AreWhatTheyWere) {
  EXPECT_EQ(read_choices(kCard, write_choices(kCard, some_choices())), some_choices());
  EXPECT_TRUE(read_choices(kCard, write_choices(kCard, {})).empty());
}

TEST(StoredChoices, OfAnotherCardOrLibraryMeanNothing) {
  EXPECT_TRUE(read_choices("A card, cuBLASLt 130200", write_choices(kCard, some_choices())).empty());
}

TEST(StoredChoices, WhatIsNotTheirTextIsNone) {
  const std::string text = write_choices(kCard, some_choices());
  for (const std::string& wrong :
       {std::string(), std::string("[]"), text.substr(0, text.size() / 2),
        std::string(R"({"made_for":"A card, cuBLASLt 130100","products":[{"rows":"many"}]})")})
    EXPECT_TRUE(read_choices(kCard, wrong).empty()) << wrong;
}

TEST(StoredChoices, WhatIsKeptIsNotMeasuredAndWhatIsKnownStays) {
  const at::Tensor a = at::randn({24, 40}), b = at::randn({40, 16});
  const ProductKey key = key_of({.a = a, .b = b, .result = at::zeros({24, 16})}).value();
  ProductKey other = key;
  other.adds = true;
  int measured = 0;
  const auto measure = [&] { return ++measured, std::optional(Measured<int>{3, 1, 2}); };
  ProductChoices<int> choices;
  choices.keep(key, 7), choices.keep(other, std::nullopt);
  EXPECT_EQ(choices.find(key, measure), 7);
  EXPECT_EQ(choices.find(other, measure), std::nullopt);
  EXPECT_EQ(measured, 0);
  EXPECT_EQ(choices.tuning().products, 0) << "none was measured";
  choices.keep(key, 8);
  EXPECT_EQ(choices.find(key, measure), 7);
  EXPECT_EQ(choices.ways().size(), 2u);
}

}  // namespace
}  // namespace gpt::ops
