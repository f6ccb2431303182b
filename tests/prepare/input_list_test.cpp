#include "gpt/prepare/input_list.h"

#include <gtest/gtest.h>

#include <string>

#include "core/scratch_folder.h"

namespace gpt::prepare {
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

// As those of SmolLM2 have none for 0xFF, which is in no text in UTF-8.
TEST(InputList, GoesWithTokenizersThatLackBytes) {
  const ScratchFolder folder;
  folder.file("in/a.txt", "aa");
  PrepareOptions options;
  options.inputs = {folder / "in"};
  options.tokenizer = folder.file("tokenizer.json", R"({"version": "1.0", "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": null, "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
    "use_regex": true}, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})");
  EXPECT_NE(list_input(options, "").find("1 file to read"), std::string::npos);
}

TEST(InputList, ReadsConversationsAsTheRunWill) {
  const ScratchFolder folder;
  folder.file("in/a.jsonl", R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"
                            "\n");
  folder.file("in/b.txt", "text");
  PrepareOptions options;
  options.inputs = {folder / "in"};
  options.chat_format = tokenizer::TextFormat();
  const std::string list = list_input(options, "");
  EXPECT_NE(list.find("in/a.jsonl\n"), std::string::npos) << list;
  EXPECT_NE(list.find("passed over: " + (folder / "in/b.txt") + ": it holds text, and the input is conversations"),
            std::string::npos)
      << list;
  EXPECT_NE(list.find("1 file to read"), std::string::npos) << list;
}

// Also what stands far in, and what only some tokenizers refuse.
TEST(InputList, ReadsAsMuchAsTheRunWill) {
  const ScratchFolder folder;
  folder.file("in/a.txt", "text");
  folder.file("in/latin.txt", std::string(100'000, 'x') + "caf\xE9");
  folder.file("in/z.jsonl", "{\"text\": \"" + std::string(100'000, 'x') + "\"}\n{\n");
  PrepareOptions options;
  options.inputs = {folder / "in"};
  const std::string list = list_input(options, "");
  EXPECT_NE(list.find("z.jsonl: line 2: byte"), std::string::npos) << list;
  EXPECT_NE(list.find("2 files to read with the tokenizer gpt2, "), std::string::npos) << list;
  options.tokenizer = "char";
  const std::string fewer = list_input(options, "");
  EXPECT_NE(fewer.find("latin.txt: byte 100003: 0xE9 is not valid UTF-8"), std::string::npos) << fewer;
  EXPECT_NE(fewer.find("1 file to read with the tokenizer char, "), std::string::npos) << fewer;
}

}  // namespace
}  // namespace gpt::prepare
