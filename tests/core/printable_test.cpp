#include "gpt/core/printable.h"

#include <gtest/gtest.h>

#include <string>

#include "gpt/core/utf8.h"

namespace gpt {
namespace {

TEST(Printable, SpellsOutWhatCommandsATerminal) {
  EXPECT_EQ(printable("plain\n\ttext: é € 😀"), "plain\n\ttext: é € 😀");
  EXPECT_EQ(printable("\x1b[2J\r\a\x7f"), "\\x1b[2J\\x0d\\x07\\x7f");
  EXPECT_EQ(printable(std::string(1, '\0')), "\\x00");
  EXPECT_EQ(printable("\u009b31m \u009d0;title"), "\\x9b31m \\x9d0;title");  // C1: CSI and OSC in one character
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "\\x9b31m");  // the same as a byte that is no UTF-8
  EXPECT_EQ(printable("a\u202eb\u2066c\u200f\u061c"), "a\\u202eb\\u2066c\\u200f\\u061c");
  EXPECT_EQ(printable("bad \xE2\x82 byte"), "bad \\xe2\\x82 byte");
}

TEST(Printable, AValueWithinAMessageHasNoLineEnds) {
  EXPECT_EQ(printable_line("a\nb\tc\u202e"), "a\\x0ab\\x09c\\u202e");
}

TEST(Printable, AWordForAShellIsQuotedWhereItWouldBeRead) {
  EXPECT_EQ(shell_word("models/a-1.pt"), "models/a-1.pt");
  EXPECT_EQ(shell_word("my model"), "\"my model\"");
  EXPECT_EQ(shell_word("*.txt"), "\"*.txt\"");
  EXPECT_EQ(shell_word("$a's"), "'$a'\\''s'");
  EXPECT_EQ(shell_word(""), "\"\"");
}

TEST(Shortened, LosesItsMiddle) {
  EXPECT_EQ(shortened("short", 5), "short");
  EXPECT_EQ(shortened("0123456789", 4), "01 ... (6 bytes left out) ... 89");
  const std::string path(100'000, 'x'), line = shortened("cannot read " + path + ": name another one", 200);
  EXPECT_LT(line.size(), 300u);
  EXPECT_TRUE(line.starts_with("cannot read xxx")) << line;
  EXPECT_TRUE(line.ends_with(": name another one")) << line;
}

TEST(Shortened, CutsNoCharacter) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "€";
  for (size_t most = 10; most < 20; ++most) EXPECT_TRUE(utf8::is_valid(shortened(text, most))) << most;
}

TEST(Utf8, AWholeTextIsValid) {
  EXPECT_TRUE(utf8::is_valid(""));
  EXPECT_TRUE(utf8::is_valid("é€😀"));
  EXPECT_FALSE(utf8::is_valid("\xE2\x82"));
  EXPECT_FALSE(utf8::is_valid("\xED\xA0\x80"));
}

}  // namespace
}  // namespace gpt
