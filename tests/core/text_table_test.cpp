#include "gpt/core/text_table.h"

#include <gtest/gtest.h>

namespace gpt {
namespace {

TextTable numbers() {
  return {.columns = {{TextColumn::left, 6}, {TextColumn::right}, {}},
          .rows = {{"loss", "1.25", "± 0.1"}, {"a µm and more", "13", ""}, {"b", "2", "as it was before"}}};
}

TEST(TextTable, ColumnsAreAsWideAsTheirWidestCell) {
  EXPECT_EQ(numbers().widths(), (std::vector<size_t>{13, 4, 16})) << "in characters";
  EXPECT_EQ(numbers().text(),
            "loss           1.25  ± 0.1\n"
            "a µm and more    13\n"
            "b                 2  as it was before\n");
}

TEST(TextTable, ColumnsMayBeWiderAndSeparatedOtherwise) {
  TextTable table{.columns = {{TextColumn::left, 3}, {TextColumn::right, 3}},
                  .rows = {{"a", "1"}},
                  .before = "| ",
                  .between = " | ",
                  .after = " |"};
  EXPECT_EQ(table.text(), "| a   |   1 |\n");
  table.rows.clear();
  EXPECT_EQ(table.text(), "");
}

TEST(TextTable, TheLastCellGoesOnBelowItself) {
  EXPECT_EQ(numbers().lines(30)[2], "b                 2  as it was\n" + std::string(21, ' ') + "before");
}

}  // namespace
}  // namespace gpt
