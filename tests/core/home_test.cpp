#include "gpt/core/home.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "gpt/core/error.h"

namespace gpt {
namespace {

// HOME as a test needs it, and as it was afterwards.
class Home : public testing::Test {
 protected:
  Home() : before_(getenv("HOME") ? getenv("HOME") : "") { setenv("HOME", "/home/me", /*overwrite=*/1); }
  ~Home() override { setenv("HOME", before_.c_str(), /*overwrite=*/1); }
  const std::string before_;
};

TEST_F(Home, StandsForALeadingTilde) {
  EXPECT_EQ(expand_home("~"), "/home/me");
  EXPECT_EQ(expand_home("~/a b/c.txt"), "/home/me/a b/c.txt");
  for (const char* path : {"", "a", "a~", "a/~/b", "./~", "/~", "-"}) EXPECT_EQ(expand_home(path), path);
}

TEST_F(Home, OfAnotherUserIsThatOfTheSystem) {
  const passwd* root = getpwuid(0);
  ASSERT_TRUE(root);
  EXPECT_EQ(expand_home("~" + std::string(root->pw_name) + "/x"), root->pw_dir + std::string("/x"));
  try {
    (void)expand_home("~no-such-user/x");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "'~no-such-user/x' begins with the home folder of no-such-user, but there is no such user; write "
                 "'./~no-such-user/x' for a file of that name");
  }
}

TEST_F(Home, IsTheUsersOwnWhereTheVariableIsNotSet) {
  unsetenv("HOME");
  const passwd* user = getpwuid(getuid());
  ASSERT_TRUE(user);
  EXPECT_EQ(expand_home("~/x"), user->pw_dir + std::string("/x"));
  setenv("HOME", "", /*overwrite=*/1);
  EXPECT_THROW((void)expand_home("~/x"), Error);
}

}  // namespace
}  // namespace gpt
