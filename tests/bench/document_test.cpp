#include "gpt/bench/document.h"

#include <gtest/gtest.h>

namespace gpt::bench {
namespace {

Document example() {
  return {"The `speed` of each.",
          Table{{{"name", "ms", "verdict"}, {"a", "1.5", ""}, {"of `b`", "12.5", "slower | here"}}},
          List{{"`a`: first", "b: second"}}};
}

TEST(Documents, AreMarkdownInAFile) {
  EXPECT_EQ(to_markdown(example()),
            "The `speed` of each.\n"
            "\n"
            "| name   |   ms | verdict       |\n"
            "| ------ | ---: | ------------- |\n"
            "| a      |  1.5 |               |\n"
            "| of `b` | 12.5 | slower | here |\n"
            "\n"
            "* `a`: first\n"
            "* b: second\n");
}

TEST(Documents, ArePlainTextOnATerminal) {
  EXPECT_EQ(to_plain_text(example()),
            "The \"speed\" of each.\n"
            "\n"
            "name      ms  verdict\n"
            "------  ----  -------------\n"
            "a        1.5\n"
            "of `b`  12.5  slower | here\n"
            "\n"
            "- \"a\": first\n"
            "- b: second\n");
}

TEST(Documents, ANarrowTerminalSplitsNoWords) {
  EXPECT_EQ(to_plain_text({"Words that are not broken.", example()[1], List{{"one two three"}}}, 14),
            "Words that are\n"
            "not broken.\n"
            "\n"
            "name      ms\n"
            "------  ----\n"
            "a        1.5\n"
            "of `b`  12.5\n"
            "    verdict\n"
            "    slower |\n"
            "    here\n"
            "\n"
            "- one two\n"
            "  three\n");
}

}  // namespace
}  // namespace gpt::bench
