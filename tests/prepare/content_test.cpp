// Content and name of a file decide together how it is read.
#include "src/prepare/content.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "prepare/packed.h"
#include "support/expect_error.h"

namespace gpt::prepare {
namespace {

class ContentTest : public testing::Test {
 protected:
  struct Found {
    Content content;
    std::string line;
  };
  Found open(const std::string& name, const std::string& bytes) {
    const Source source = find_sources({folder_.file(name, bytes)}, "").sources.at(0);
    Content content = open_content(source, open_file(source, consumed_, [] {}));
    std::string line = disagreement(source, content);
    if (!line.empty()) line = line.substr(source.path.size());
    return {std::move(content), line};
  }
  std::string text_of(const std::string& name, const std::string& bytes) {
    return std::string(open(name, bytes).content.bytes->peek(1 << 16));
  }

  const ScratchFolder folder_;
  std::atomic<uint64_t> consumed_ = 0;
};

const std::string kLines = "{\"text\": \"one\", \"url\": \"http://a\"}\n{\"text\": \"two\"}\n";

TEST_F(ContentTest, JsonLinesAreKnownByTheirContent) {
  for (const char* name : {"a.jsonl", "a.ndjson", "a.json"}) {
    EXPECT_EQ(open(name, kLines).content.kind, TextKind::json_lines) << name;
    EXPECT_EQ(open(name, kLines).line, "") << name;
  }
  EXPECT_EQ(open("part.json.gz", gzip(kLines)).content.kind, TextKind::json_lines);
  EXPECT_EQ(open("part.json.zst", zstd(kLines)).line, "");
  EXPECT_EQ(open("a.txt", kLines).line, " holds JSON lines");
  EXPECT_EQ(open("data", "\xEF\xBB\xBF\r\n" + kLines).content.kind, TextKind::json_lines);
  EXPECT_EQ(
      open("a.txt", "{\"text\": \"a line longer than the head " + std::string(100'000, 'x') + "\"}\n").content.kind,
      TextKind::json_lines);
  EXPECT_EQ(open("a.txt", "{\"text\": \"one\"}").content.kind, TextKind::json_lines);
  for (const char* text : {"{\n  \"text\": 1\n}\n", "{x}\n", "{\"a\": 1}\nand so on\n", "[1, 2]\n", "{}{}\n", "a {}\n"})
    EXPECT_EQ(open("a.txt", text).content.kind, TextKind::plain) << text;
  EXPECT_EQ(open("a.txt", "{\"no json" + std::string(100'000, 'x')).content.kind, TextKind::json_lines);  // it may be
  EXPECT_EQ(open("a.txt", "{no json" + std::string(100'000, 'x')).content.kind, TextKind::plain);
  EXPECT_EQ(open("a.txt", "WARC/1.0\r\nWARC-Type: warcinfo\r\n").line, " holds Common Crawl's records");
}

TEST_F(ContentTest, TagsAndTablesAreNamed) {
  const auto markup = [this](const std::string& name, const std::string& bytes) {
    const Source source = find_sources({folder_.file(name, bytes)}, "").sources.at(0);
    const auto found = markup_of(source, open_content(source, open_file(source, consumed_, [] {})));
    return found ? std::string(found->what) : "";
  };
  EXPECT_EQ(markup("a.txt", "\xEF\xBB\xBF\n<!DOCTYPE HTML><p>text"), "is HTML, and its tags are learned as text");
  EXPECT_EQ(markup("a.HTM.gz", gzip("<p>text")), "is HTML, and its tags are learned as text");
  EXPECT_EQ(markup("a.txt", "<?xml version='1.0'?>"), "is XML, and its tags are learned as text");
  EXPECT_TRUE(markup("a.csv", "a,b\n1,2\n").starts_with("is a table (CSV)"));
  EXPECT_TRUE(markup("a.tsv", "a\tb\n").starts_with("is a table (TSV)"));
  EXPECT_EQ(markup("a.txt", "a,b\n1,2\n<p>"), "");
  EXPECT_EQ(markup("a.csv", kLines), "");
}

TEST_F(ContentTest, OneJsonValueIsNotLines) {
  EXPECT_ERROR(open("a.json", "[{\"text\": \"one\"}]"), ExitCode::data, "a.json: it is JSON, but a list; write");
  EXPECT_ERROR(open("a.json", " {\n  \"text\": \"one\"\n}\n"), ExitCode::data,
               "it is JSON, but an object over several lines");
  EXPECT_ERROR(open("a.jsonl", "[\n{\"text\": \"one\"}]"), ExitCode::data, "jq -c '.[]'");
}

TEST_F(ContentTest, PackingIsKnownByItsContent) {
  EXPECT_EQ(text_of("a.txt", gzip("text")), "text");
  EXPECT_EQ(open("a.txt", gzip("text")).line, " is packed with gzip");
  EXPECT_EQ(open("a.gz", zstd("text")).line, " is packed with zstd");
  EXPECT_EQ(text_of("a.gz", zstd("text")), "text");
  EXPECT_EQ(open("a.txt.gz", "unpacked by a browser").line, " is not packed with gzip");
  EXPECT_EQ(text_of("a.txt.gz", "unpacked by a browser"), "unpacked by a browser");
  EXPECT_EQ(open("a.txt", gzip(kLines)).line, " is packed with gzip and holds JSON lines");
  // A frame that is to be skipped comes first, as pzstd writes it.
  EXPECT_EQ(text_of("a.zst", std::string("\x50\x2a\x4d\x18\x04\0\0\0abcd", 12) + zstd("text")), "text");
}

// zstd --long=31 and --ultra; the library refuses windows above 128 MB unless it is told otherwise.
TEST_F(ContentTest, ReadsTheLongWindowsOfZstd) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 28);
  std::string packed(1000, '\0');
  ZSTD_inBuffer in{"text", 4, 0};
  ZSTD_outBuffer out{packed.data(), packed.size(), 0};
  ASSERT_EQ(ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush),
            0);  // without its size, so that the window is needed
  ASSERT_EQ(ZSTD_compressStream2(context, &out, &in, ZSTD_e_end), 0);
  ZSTD_freeCCtx(context);
  EXPECT_EQ(text_of("a.zst", packed.substr(0, out.pos)), "text");
}

TEST_F(ContentTest, SaysWhatIsNoText) {
  const std::pair<std::string, const char*> cases[] = {
      {"%PDF-1.7\n1 0 obj\n", "it is a PDF"},
      {std::string("PK\x03\x04\x14\0", 6), "it is a zip archive; unpack it"},
      {std::string("\xfd"
                   "7zXZ\0\0\x04",
                   8),
       "it is compressed with xz"},
      {"BZh91AY&SY\x8b\x1f", "it is compressed with bzip2"},
      {"PAR1\x15", "it is a Parquet table"},
      {"\x93NUMPY\x01", "it is an array of NumPy's; token ids are given as data.bin"},
      {"{\\rtf1\\ansi text}", "it is a document in RTF"},
      {std::string(257, 'a') + "ustar\x30\x30", "it is a tar archive"},
      {std::string("\xff\xfeh\0", 4), "it looks like UTF-16"},
  };
  for (const auto& [bytes, message] : cases) {
    EXPECT_ERROR(open("a.txt", bytes), ExitCode::data, std::string("a.txt: ") + message);
    EXPECT_ERROR(open("a.jsonl", bytes), ExitCode::data, std::string("a.jsonl: ") + message);
  }
  EXPECT_EQ(open("a.txt", "BZh is how it begins").content.kind, TextKind::plain);
}

}  // namespace
}  // namespace gpt::prepare
