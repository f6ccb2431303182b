#include "gpt/prepare/documents.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/utf8.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "support/expect_error.h"

namespace gpt::prepare {
namespace {

class DocumentsTest : public testing::Test {
 protected:
  std::vector<std::string> read(const std::vector<std::string>& inputs) const {
    Documents documents(inputs, "text", *tokenizer::make_tokenizer("byte", {}), utf8::last_character);
    std::vector<std::string> texts;
    double share = 0;
    while (const auto piece = documents.next()) {
      if (piece->first) texts.emplace_back();
      texts.back() += piece->text;
      EXPECT_GE(documents.share(), share);
      share = documents.share();
    }
    EXPECT_EQ(documents.share(), 1);
    return texts;
  }

  const ScratchFolder folder_;
};

TEST_F(DocumentsTest, FilesAndLinesAreDocuments) {
  const std::string plain = folder_.file("in/a.txt", "\xef\xbb\xbfone\r\ntwo");
  folder_.file("in/b.jsonl", "{\"text\": \"three\"}\n{\"text\": \"\"}\n{\"text\": \"four\"}\n");
  EXPECT_EQ(read({folder_ / "in"}), (std::vector<std::string>{"one\ntwo", "three", "four"}));
  EXPECT_EQ(read({plain}), (std::vector<std::string>{"one\ntwo"}));
}

TEST_F(DocumentsTest, ALongDocumentComesInPieces) {
  std::string text;
  while (text.size() < 3'000'000) text += "é" + std::to_string(text.size());
  EXPECT_EQ(read({folder_.file("long.txt", text), folder_.file("short.txt", "x")}),
            (std::vector<std::string>{text, "x"}));
}

TEST_F(DocumentsTest, APlaceIsThatOfTheLastPiece) {
  Documents lines({folder_.file("a.jsonl", "{\"text\": \"one\"}\n\n{\"text\": \"two\"}\n")}, "text",
                  *tokenizer::make_tokenizer("byte", {}), utf8::last_character);
  lines.next();
  EXPECT_EQ(lines.place(1), (folder_ / "a.jsonl") + ": line 1: byte 1");
  lines.next();
  EXPECT_EQ(lines.place(2), (folder_ / "a.jsonl") + ": line 3: byte 2");
  EXPECT_FALSE(lines.next());
}

TEST_F(DocumentsTest, WhatCannotBeReadIsAnErrorInAFolderToo) {
  folder_.file("in/a.txt", "one");
  folder_.file("in/b.txt", std::string("two\0three", 9));
  EXPECT_ERROR(read({folder_ / "in"}), ExitCode::data, "b.txt");
  folder_.file("in/b.txt", "two");
  folder_.file("in/c.jsonl", "{\"text\": \"three\"}\n{\"other\": 1}\n");
  EXPECT_ERROR(read({folder_ / "in"}), ExitCode::data, "c.jsonl: line 2");
}

}  // namespace
}  // namespace gpt::prepare
