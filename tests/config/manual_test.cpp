#include "gpt/config/manual.h"

#include <gtest/gtest.h>

#include "gpt/config/arguments.h"
#include "support/expect_error.h"

namespace gpt::config {
namespace {

TEST(Manual, ParagraphsAreWrappedAndLinksLoseTheirAddresses) {
  EXPECT_EQ(plain_text("# Title\n\nOne [two](two.md#here) three\nfour five.\n\nSix.\n", 16),
            "# Title\n\nOne two three\nfour five.\n\nSix.\n");
  EXPECT_EQ(plain_text("* one [a](b) and two\n  three\n* four\n10. five six seven\n", 14),
            "* one a and\n  two three\n* four\n10. five six\n    seven\n");
  EXPECT_EQ(plain_text("a [b] c (d)\n", 0), "a [b] c (d)\n") << "no link";
}

TEST(Manual, CommandsAndTablesStayAsTheyAre) {
  EXPECT_EQ(plain_text("```\nls [a](b)   # a long line\nls\n```\n| a | b |\n| --- | --- |\nand so on\n", 8),
            "    ls [a](b)   # a long line\n    ls\n| a | b |\n| --- | --- |\nand so\non\n");
}

TEST(Manual, HasThePagesOfTheCheckout) {
  const auto pages = manual_pages();
  for (const char* topic : {"gpt-train", "configs", "recipes", "run", "plan", "prepare", "serve"})
    EXPECT_TRUE(pages.contains(topic)) << topic;
  EXPECT_NE(manual("run", 80).find("\n## "), std::string::npos);
  EXPECT_ERROR(manual("rum", 80), ExitCode::config, "--manual must be one of bench, board, configs, distributed");
}

TEST(ManPage, SaysWhatHelpSays) {
  bool is_on = false;
  int64_t number = 5;
  const std::string page = man_page(
      {.name = "gpt-bench ladder",
       .description = "Measures steps\non this machine. More.\n\n  .a  first\n",
       .usage = "[--config FILE]",
       .sections = {{"", {switch_row("quick", is_on, "be quick \\ brief", {{"q"}})}},
                    {"Run", {{.name = "steps", .target = &number, .help = "'how' many", .min = 1, .max = 9}}}},
       .guide = {.examples = "  gpt-bench ladder\n",
                 .ending =
                     "It says more.\n\nExit status\n  0 done,\n  2 wrong\n\nInputs\n  a, b    two\n      of them"}});
  EXPECT_NE(page.find(".TH \"gpt\\-bench\\-ladder\" 1 \"\" \"gpt\\-train "), std::string::npos) << page;
  EXPECT_EQ(page.substr(page.find(".SH")), R"(.SH "NAME"
gpt\-bench\-ladder \- Measures steps on this machine
.SH "SYNOPSIS"
.B gpt\-bench ladder
[\-\-config FILE]
.SH "DESCRIPTION"
.PP
Measures steps
on this machine. More.
.TP
.B \&.a
first
.PP
It says more.
.SH "OPTIONS"
A flag is written \-\-flag VALUE or \-\-flag=VALUE, with \- or _ between its words. Each is shown with its default, its [range or choices] and its (other spellings).
.TP
.B \-q, \-\-quick
be quick \e brief
.SS "Run"
.TP
.B \-\-steps 5
\&'how' many [1 to 9]
.SH "EXAMPLES"
.nf
  gpt\-bench ladder
.fi
.SH "EXIT STATUS"
.PP
0 done,
.PP
2 wrong
.SH "INPUTS"
.TP
.B a, b
two
of them
)");
}

}  // namespace
}  // namespace gpt::config
