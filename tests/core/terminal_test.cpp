#include "gpt/core/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace gpt {
namespace {

TEST(Terminal, TheFirstVariableThatSaysSomethingDecidesTheCharacters) {
  const auto is_utf8 = [](const char* all, const char* characters, const char* lang) {
    setenv("LC_ALL", all, 1);
    setenv("LC_CTYPE", characters, 1);
    setenv("LANG", lang, 1);
    return locale_is_utf8();
  };
  EXPECT_TRUE(is_utf8("C.UTF-8", "", ""));
  EXPECT_TRUE(is_utf8("", "en_US.utf8", "C"));
  EXPECT_TRUE(is_utf8("", "", "de_DE.UTF-8@euro"));
  EXPECT_FALSE(is_utf8("C", "C.UTF-8", "C.UTF-8"));
  EXPECT_FALSE(is_utf8("", "", "de_DE.ISO-8859-1"));
  EXPECT_FALSE(is_utf8("", "", ""));
}

TEST(Terminal, AFileHasNoColumns) {
  const int descriptor = open("/dev/null", O_WRONLY | O_CLOEXEC);
  EXPECT_EQ(terminal_columns(descriptor), 0);
  close(descriptor);
}

}  // namespace
}  // namespace gpt
