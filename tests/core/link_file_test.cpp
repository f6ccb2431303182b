// A second name for a file (gpt/core/file.h).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/file.h"

namespace gpt {
namespace {

TEST(LinkedFile, TakesThePlaceOfAnotherAndLeavesNothingBeside) {
  const ScratchFolder folder;
  const std::string one = folder.path() + "/one", two = folder.path() + "/two";
  for (const std::string& path : {one, two}) {
    AtomicFile file(path);
    file.write(path);
    file.commit(Durability::unsynced);
  }
  for (int again = 0; again < 2; ++again) EXPECT_TRUE(link_file(one, two));
  EXPECT_EQ(read_file(two, ExitCode::data), one);
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"one", "two"}));
  EXPECT_FALSE(link_file(folder.path() + "/none", two));
  EXPECT_FALSE(link_file(one, folder.path() + "/none/two"));
  EXPECT_EQ(read_file(two, ExitCode::data), one);
}

}  // namespace
}  // namespace gpt
