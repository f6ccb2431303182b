#include "gpt/prepare/input_list.h"

#include <gtest/gtest.h>

#include <string>

#include "core/scratch_folder.h"

namespace gpt {
namespace {

TEST(InputList, ShowsWhatWillBePassedOver) {
  const ScratchFolder folder;
  folder.file("in/a.jsonl", "{\"text\": \"a\"}\n");
  folder.file("in/b.jsonl", "\n{\"content\": \"a\"}\n");
  folder.file("in/c.jsonl", "{\"text\": \"a\"}\n{\n");
  folder.file("in/d\x1b.txt", "text");
  PrepareOptions options;
  options.inputs = {folder / "in"};
  const std::string list = list_input(options, "");
  EXPECT_NE(list.find("passed over: " + (folder / "in/b.jsonl") + ": line 2: there is no field 'text'"),
            std::string::npos)
      << list;
  EXPECT_NE(list.find("passed over: " + (folder / "in/c.jsonl") + ": line 2: byte"), std::string::npos) << list;
  EXPECT_NE(list.find("in/d\\x1b.txt\n"), std::string::npos) << list;
  EXPECT_NE(list.find("2 files to read"), std::string::npos) << list;
  EXPECT_NE(list.find("2 passed over"), std::string::npos) << list;
}

}  // namespace
}  // namespace gpt
