#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "gpt/config/load.h"
#include "gpt/config/option.h"

namespace gpt::config {
namespace {

TEST(Reference, IsOneTableRowPerKey) {
  Config defaults;
  std::istringstream lines(reference_markdown());
  const std::vector<Option> rows = options(defaults);
  auto row = rows.begin();
  for (std::string line; std::getline(lines, line);) {
    if (line == "### What does not go together") break;
    if (line.rfind("| `", 0) != 0) continue;
    ASSERT_NE(row, rows.end());
    EXPECT_EQ(line.rfind("| `" + row->name + "` | ", 0), 0) << line;
    EXPECT_EQ(std::count(line.begin(), line.end(), '|'), 6) << line;
    EXPECT_NE(line.find(row->help), std::string::npos) << line;
    for (const Alias& alias : row->aliases) EXPECT_NE(line.find("`" + alias.name + "`"), std::string::npos) << line;
    ++row;
  }
  EXPECT_EQ(row, rows.end());
}

}  // namespace
}  // namespace gpt::config
