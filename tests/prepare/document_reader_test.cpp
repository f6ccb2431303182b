#include "src/prepare/document_reader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "prepare/packed.h"
#include "support/expect_error.h"

namespace gpt::prepare {
namespace {

namespace fs = std::filesystem;

std::string record(const std::string& type, const std::string& text) {
  return "WARC/1.0\r\nWARC-Type: " + type +
         "\r\nWARC-Target-URI: http://a.example/\r\ncontent-length: " + std::to_string(text.size()) + "\r\n\r\n" +
         text + "\r\n\r\n";
}

class DocumentReaderTest : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& bytes) const { return folder_.file(name, bytes); }

  DocumentReader reader(const std::vector<std::string>& inputs, int64_t max_chars = 0) const {
    DocumentReader::Options options;
    options.last_cut = [](std::string_view text) { return text.rfind(' ') == std::string::npos ? 0 : text.rfind(' '); };
    options.text_field = "text";
    options.max_chars = max_chars;
    return DocumentReader(find_sources(inputs, folder_ / "out").sources, options);
  }

  // Whole documents, put together from their parts.
  static std::vector<std::string> documents(DocumentReader&& reader) {
    std::vector<std::string> result;
    bool at_start = true;
    while (std::optional<Chunk> chunk = reader.next()) {
      const Chunk parsed = reader.parsed(std::move(*chunk));
      size_t begin = 0;
      for (const DocumentPart& part : parsed.parts) {
        EXPECT_EQ(part.first, at_start);
        if (part.first) result.emplace_back();
        result.back() += parsed.text.substr(begin, part.end - begin);
        begin = part.end;
        at_start = part.last;
      }
      EXPECT_EQ(begin, parsed.text.size());
    }
    EXPECT_TRUE(at_start);
    return result;
  }
  std::vector<std::string> documents(const std::vector<std::string>& inputs) const { return documents(reader(inputs)); }

  static std::vector<std::string> reasons(const DocumentReader& reader) {
    std::vector<std::string> result;
    for (const auto& [source, fault] : reader.faults()) result.push_back(fault.why);
    return result;
  }

  ScratchFolder folder_;
};

using Texts = std::vector<std::string>;

TEST_F(DocumentReaderTest, AFileOfTextIsADocument) {
  const std::string bytes = "caf\xE9 \xE2\x82 \r \n end";  // kept byte for byte
  const std::string late_nul = std::string(70000, 'x') + std::string(1, '\0') + "y";
  EXPECT_EQ(documents({file("a.txt", bytes), file("b", late_nul)}), (Texts{bytes, late_nul}));
  EXPECT_ERROR(documents({file("c.txt", bytes + std::string(1, '\0'))}), ExitCode::data,
               "c.txt: byte 15 is NUL: it is a binary file");
}

TEST_F(DocumentReaderTest, WindowsLineEndsOfATextBecomeLF) {
  const auto one = [&](const std::string& bytes) { return documents({file("a.txt", bytes)}); };
  EXPECT_EQ(one("a\r\nb\r\n\r\nc"), Texts{"a\nb\n\nc"});
  EXPECT_EQ(one("a\rb\r\r\nc\n\r"), Texts{"a\rb\r\nc\n\r"});  // a CR that ends no line is a character like any other
  EXPECT_EQ(one("\r\n"), Texts{"\n"});
  EXPECT_EQ(one("\r"), Texts{"\r"});
  EXPECT_EQ(documents({file("a.gz", gzip("a\r\nb")), file("a.zst", zstd("\r\n"))}), (Texts{"a\nb", "\n"}));
  const std::string page = record("conversion", "one\r\ntwo");
  EXPECT_EQ(documents({file("a.jsonl", "{\"text\": \"one\\r\\ntwo\"}\r\n"), file("a.wet", page)}),
            (Texts{"one\r\ntwo", "one\r\ntwo"}));  // these say themselves what their text is
  DocumentReader input =
      reader({file("1", "a\r\nb\r\nc"), file("2", "a\nb\r"), file("3", "\r\n"), file("4.wet", page)});
  while (input.next()) {}
  EXPECT_EQ(input.crlf_files(), 2);
}

// Wherever a block that is read at once, or a chunk, may end.
TEST_F(DocumentReaderTest, CrAndLfThatWereReadApartAreALineEnd) {
  for (const size_t size : {65535, 131071, 524286, 524287, 524288, 1048575}) {
    const std::string before(size, 'x'), after(600'000, 'y');
    EXPECT_TRUE(documents({file("a.txt", before + "\r\n" + after)}) == (Texts{before + "\n" + after})) << size;
    EXPECT_TRUE(documents({file("b.txt", before + "\r" + after)}) == (Texts{before + "\r" + after})) << size;
    EXPECT_TRUE(documents({file("c.txt", before + "\r\r\n")}) == (Texts{before + "\r\n"})) << size;
    EXPECT_TRUE(documents({file("d.txt", before + "\r"), file("e.txt", "\n")}) == (Texts{before + "\r", "\n"})) << size;
    const std::string path = file("f.txt", before + "\r\n" + after);
    EXPECT_TRUE(documents(reader({path}, size + 2)) == (Texts{before + "\ny"})) << size;
  }
}

TEST_F(DocumentReaderTest, ChunksOfWindowsTextDoNotDependOnHowItArrives) {
  std::string windows, text;
  for (int i = 0; i < 60000; ++i) {
    const std::string line = std::string(i * 7919 % 50, 'a') + (i % 7 == 0 ? "\r." : " ");
    windows += line + "\r\n", text += line + "\n";
  }
  std::vector<std::vector<std::string>> chunks(3);
  const std::string paths[] = {file("a.txt", windows), file("a.gz", gzip(windows)), file("b.txt", text)};
  for (int k = 0; k < 3; ++k) {
    DocumentReader input = reader({paths[k]});
    while (const std::optional<Chunk> chunk = input.next()) {
      chunks[k].push_back(chunk->text);
      EXPECT_EQ(chunk->parts.at(0).key, document_key(text));
    }
  }
  EXPECT_GT(chunks[0].size(), 2);
  EXPECT_TRUE(chunks[0] == chunks[1]);  // not EXPECT_EQ, which looks for the differing lines of megabytes
  EXPECT_TRUE(documents({paths[0]}) == documents({paths[2]}));
}

TEST_F(DocumentReaderTest, AByteOrderMarkIsNoText) {
  const std::string mark = "\xEF\xBB\xBF";
  EXPECT_EQ(documents({file("a.txt", mark + "text" + mark), file("b.gz", gzip(mark + "packed"))}),
            (Texts{"text" + mark, "packed"}));
  EXPECT_EQ(documents({file("a.jsonl", mark + "{\"text\": \"" + mark + "one\"}\n")}), Texts{mark + "one"});
  EXPECT_ERROR(documents({file("empty.txt", mark)}), ExitCode::data, "empty.txt: it is empty");
  DocumentReader input = reader({file("1", mark + "a"), file("2", "a" + mark), file("3.gz", gzip(mark + "a\r\n"))});
  while (input.next()) {}
  EXPECT_EQ(input.byte_order_mark_files(), 2);
  EXPECT_EQ(input.crlf_files(), 1);
}

TEST_F(DocumentReaderTest, PlacesAreThoseOfTheFile) {
  std::string text = "\xEF\xBB\xBF";
  for (int i = 0; text.size() < 1'500'000; ++i) text += "line " + std::to_string(i) + (i % 3 == 0 ? " \r \n" : " \r\n");
  const std::string lines = "{\"text\": \"one\"}\n\n{\"text\": \"two\"}\n";
  const std::string path = file("a.txt", text), other = file("b.jsonl", lines),
                    page = file("c.wet", record("conversion", "page"));
  DocumentReader input = reader({path, other, page});
  size_t seen = 0;
  while (std::optional<Chunk> next = input.next()) {
    const Chunk chunk = input.parsed(std::move(*next));
    const uint32_t source = chunk.parts.at(0).source;
    for (size_t offset = 0; source == 0 && offset < chunk.text.size(); offset += 997) {
      const std::string place = input.place(chunk, offset);
      const size_t at = std::stoul(place.substr((path + ": byte ").size()));
      ASSERT_EQ(place, path + ": byte " + std::to_string(at));
      ASSERT_EQ(text.substr(at, 3)[0], chunk.text[offset]);
      ASSERT_GE(at, seen);
      ASSERT_LE(at, seen + 997 + 997);
      seen = at;
    }
    if (source == 0) continue;
    EXPECT_EQ(input.place(chunk, 3), source == 1 ? other + ": line 3: byte 0" : page + ": document 1");
  }
  EXPECT_GT(seen, text.size() - 2000);
}

TEST_F(DocumentReaderTest, UnpacksGzipAndZstdWithSeveralMembers) {
  std::string text;
  for (int i = 0; i < 60000; ++i) text += std::to_string(i) + " ";
  EXPECT_EQ(documents({file("a.txt.gz", gzip(text)), file("b.zst", zstd(text))}), (Texts{text, text}));
  EXPECT_EQ(documents(
                {file("c.gz", gzip("one ") + gzip("two ") + gzip(text)), file("d.zst", zstd("one ") + zstd("two"))}),
            (Texts{"one two " + text, "one two"}));
  // Far more in one packed block than is read at once.
  const std::string zeros(20'000'000, 'a');
  EXPECT_EQ(documents({file("e.gz", gzip(zeros))}), Texts{zeros});
  EXPECT_EQ(documents({file("f.zst", zstd(zeros))}), Texts{zeros});
}

// Tapes and block devices fill a file up with zeros.
TEST_F(DocumentReaderTest, ZerosMayFollowAGzipMember) {
  for (const size_t zeros : {size_t{1}, size_t{511}, size_t{1} << 17, size_t{300'000}}) {
    const std::string padding(zeros, '\0');
    EXPECT_EQ(documents({file("a.gz", gzip("one") + padding)}), Texts{"one"}) << zeros;
    EXPECT_EQ(documents({file("a.gz", gzip("one ") + padding + gzip("two") + padding)}), Texts{"one two"}) << zeros;
    EXPECT_ERROR(documents({file("a.gz", gzip("one") + padding + "x")}), ExitCode::data, "a.gz: the gzip data are ");
    EXPECT_ERROR(documents({file("a.gz", padding)}), ExitCode::data, "a.gz: the gzip data are ");
  }
}

TEST_F(DocumentReaderTest, SaysWherePackedDataEndEarlyOrAreDamaged) {
  std::string text;
  for (int i = 0; i < 60000; ++i) text += std::to_string(i * 7919) + " ";
  for (const auto& [name, packed] : {std::pair{"a.txt.gz", gzip(text)}, std::pair{"a.jsonl.zst", zstd(text)}}) {
    for (const size_t size : {size_t{0}, size_t{1}, packed.size() / 2, packed.size() - 1}) {
      EXPECT_ERROR(documents({file(name, packed.substr(0, size))}), ExitCode::data, std::string(name) + ": the ");
    }
  }
  EXPECT_ERROR(documents({file("a.gz", gzip(text).substr(0, 5000))}), ExitCode::data,
               "a.gz: the gzip data are cut off");
  EXPECT_ERROR(documents({file("a.zst", zstd(text).substr(0, 5000))}), ExitCode::data,
               "a.zst: the zstd data are cut off");
  std::string damaged = gzip(text);
  damaged[damaged.size() - 6] ^= 1;  // a bit of the checksum
  EXPECT_ERROR(documents({file("b.gz", damaged)}), ExitCode::data,
               "b.gz: the gzip data are damaged: incorrect checksum");
  const std::string other("no gzip at all\0", 15);
  EXPECT_ERROR(documents({file("c.gz", other)}), ExitCode::data, "c.gz: the gzip data are damaged: incorrect header");
  EXPECT_ERROR(documents({file("c.zst", other)}), ExitCode::data, "c.zst: the zstd data are damaged");
}

TEST_F(DocumentReaderTest, ALineOfJsonIsADocument) {
  const std::string lines =
      "{\"id\": 1, \"text\": \"one\\ntwo \\u20ac\"}\n\n{\"a\": {\"text\": \"inner\"}, \"text\": \"three\"}\r\n"
      "{\"text\": \"\"}\n{\"text\": \"last\"}";
  EXPECT_EQ(documents({file("a.jsonl", lines), file("b.ndjson.gz", gzip(lines))}),
            (Texts{"one\ntwo \xE2\x82\xAC", "three", "last", "one\ntwo \xE2\x82\xAC", "three", "last"}));
  const std::string windows =
      "{\"text\": \"one\", \"url\": \"http\", \"tags\": [\"a\"]}\r\n\r\n \t\r\n{\"text\": \"two\"}";
  EXPECT_EQ(documents({file("c.jsonl", windows)}), (Texts{"one", "two"}));
}

TEST_F(DocumentReaderTest, NamesTheLineOfBadJson) {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"text\": \"b\"", "not valid JSON"},
      {"{} {}", "not valid JSON"},
      {"[\"text\"]", "a JSON object is needed"},
      {"{\"texts\": \"b\"}", "there is no field 'text'"},
      {"{\"inner\": {\"text\": \"b\"}}", "there is no field 'text'"},
      {"{\"text\": 3}", "'text' is a number"},
      {"{\"text\": [\"b\"]}", "'text' is a list"},
      {"{\"text\": {\"text\": \"b\"}}", "'text' is an object"},
  };
  for (const auto& [line, message] : cases) {
    const std::string path = file("a.jsonl", std::string("{\"text\": \"a\"}\n\n") + line + "\n");
    EXPECT_ERROR(documents({path}), ExitCode::data, path + ": line 3: ");
    EXPECT_ERROR(documents({path}), ExitCode::data, message);
  }
}

TEST_F(DocumentReaderTest, CountsLinesAcrossChunks) {
  std::string lines;
  for (int i = 1; i < 40000; ++i) lines += "{\"text\": \"some words of document " + std::to_string(i) + "\"}\n";
  const std::vector<std::string> texts = documents({file("a.jsonl", lines)});
  ASSERT_EQ(texts.size(), 39999);
  EXPECT_EQ(texts[39998], "some words of document 39999");
  EXPECT_ERROR(documents({file("b.jsonl", lines + "{")}), ExitCode::data, "b.jsonl: line 40000: ");
  const std::string longer = "{\"text\": \"" + std::string(3'000'000, 'x') + "\"}\n";
  EXPECT_EQ(documents({file("c.jsonl", lines + longer + lines)})[39999].size(), 3'000'000);
}

TEST_F(DocumentReaderTest, ARecordOfTextOfCommonCrawlIsADocument) {
  const std::string info = record("warcinfo", "Software-Info: x\r\n");
  const std::string page = "WARC/1.0 in a page\r\n\r\nmore";
  EXPECT_EQ(documents({file("a.warc.wet", info + record("conversion", page) + record("conversion", "") +
                                              record("conversion", "two"))}),
            (Texts{page, "two"}));
  EXPECT_EQ(documents({file("b.warc.wet.gz", gzip(info) + gzip(record("conversion", page)))}), Texts{page});
}

TEST_F(DocumentReaderTest, ReadsRecordsStrictly) {
  const std::string good = record("conversion", "text");
  const auto faulty = [&](const std::string& bytes) { return documents({file("a.wet", good + bytes)}); };
  EXPECT_ERROR(faulty("text"), ExitCode::data, "a.wet: record 2: the file ends within its headers");
  EXPECT_ERROR(faulty("HTTP/1.0 200\r\n\r\n"), ExitCode::data, "record 2: it does not begin with WARC/1.0");
  EXPECT_ERROR(faulty("WARC/1.0\r\nWARC-Type: conversion\r\n\r\n"), ExitCode::data,
               "record 2: it has no Content-Length");
  EXPECT_ERROR(faulty("WARC/1.0\r\nContent-Length: -4\r\n\r\n"), ExitCode::data, "Content-Length is not a number");
  EXPECT_ERROR(faulty("WARC/1.0\r\nContent-Length: 99999999999999999999\r\n\r\n"), ExitCode::data,
               "Content-Length is not a number");
  EXPECT_ERROR(faulty("WARC/1.0\r\nContent-Length: 4 bytes\r\n\r\n"), ExitCode::data, "Content-Length is not a number");
  EXPECT_ERROR(faulty("WARC/1.0\r\nContent-Length 4\r\n\r\n"), ExitCode::data, "a header has no colon");
  EXPECT_ERROR(faulty(good.substr(0, good.size() - 5)), ExitCode::data, "record 2: the file ends 1 bytes before");
  EXPECT_ERROR(faulty(good.substr(0, good.size() - 1)), ExitCode::data, "its Content-Length is wrong");
  std::string shifted = good;
  shifted.replace(shifted.find("text\r\n\r\n"), 4, "texts");
  EXPECT_ERROR(faulty(shifted), ExitCode::data, "record 2: its Content-Length is wrong");
  EXPECT_ERROR(faulty("WARC/1.0\r\nLong: " + std::string(2'000'000, 'x')), ExitCode::data, "longer than 1 MB");
}

TEST_F(DocumentReaderTest, LongDocumentsComeInPartsThatDoNotDependOnTheirPlace) {
  std::string text;
  for (int i = 0; i < 300000; ++i) text += "word" + std::to_string(i) + " ";
  std::vector<std::vector<std::string>> parts(2);
  std::vector<uint64_t> keys;
  for (int run = 0; run < 2; ++run) {
    const std::string before = file("a.txt", std::string(run * 70001, 'b'));
    const std::string path = file("b.txt", text);
    DocumentReader input = reader(run == 0 ? std::vector{path} : std::vector{before, path});
    for (bool is_long = run == 0; std::optional<Chunk> chunk = input.next(); is_long = true) {
      EXPECT_LT(chunk->text.size(), 2u << 20);
      if (!is_long) continue;
      ASSERT_EQ(chunk->parts.size(), 1);
      parts[run].push_back(chunk->text);
      keys.push_back(chunk->parts[0].key);
    }
  }
  EXPECT_GT(parts[0].size(), 4);
  EXPECT_EQ(parts[0], parts[1]);
  for (const uint64_t key : keys) EXPECT_EQ(key, document_key(text));
  for (size_t i = 1; i < parts[0].size(); ++i) EXPECT_EQ(parts[0][i][0], ' ');  // cut where last_cut says
  const std::string endless(3'000'000, 'a');
  EXPECT_EQ(documents({file("c.txt", endless + " b")}), Texts{endless + " b"});
}

TEST_F(DocumentReaderTest, ARunThatCannotBeCutIsCutBetweenCharactersSoThatMemoryStaysBounded) {
  std::string text = "x";
  for (int i = 0; i < 5'000'000; ++i) text += "\u00e9";
  const std::string path = file("a.txt", text);
  EXPECT_EQ(documents({path}), Texts{text});
  DocumentReader input = reader({path});
  while (const std::optional<Chunk> chunk = input.next()) {
    EXPECT_LE(chunk->text.size(), 4u << 20);
    EXPECT_NE(chunk->text[0], '\xA9');
  }
}

TEST_F(DocumentReaderTest, BehindARunThatCannotBeCutChunksAreSmallAgain) {
  std::string text(5'000'000, 'x');
  while (text.size() < 12'000'000) text += " word";
  DocumentReader input = reader({file("a.txt", text)});
  size_t before = 0;
  while (const std::optional<Chunk> chunk = input.next()) {
    EXPECT_LE(chunk->text.size(), before < 5'000'000 ? 4u << 20 : 1u << 20);
    before += chunk->text.size();
  }
  EXPECT_EQ(before, text.size());
}

TEST_F(DocumentReaderTest, MaxCharsCountsCharactersOfAllDocuments) {
  const auto first = [&](const std::vector<std::string>& inputs, int64_t count) {
    return documents(reader(inputs, count));
  };
  const std::string a = file("a.txt", "\xC3\xA9\xC3\xA0z"),
                    b = file("b.jsonl", "{\"text\": \"12\"}\n{\"text\": \"34\"}\n");
  EXPECT_EQ(first({a, b}, 1), Texts{"\xC3\xA9"});
  EXPECT_EQ(first({a, b}, 3), Texts{"\xC3\xA9\xC3\xA0z"});
  EXPECT_EQ(first({a, b}, 5), (Texts{"\xC3\xA9\xC3\xA0z", "12"}));
  EXPECT_EQ(first({a, b}, 6), (Texts{"\xC3\xA9\xC3\xA0z", "12", "3"}));
  EXPECT_EQ(first({a, b}, 100), (Texts{"\xC3\xA9\xC3\xA0z", "12", "34"}));
  std::string text;
  while (text.size() < 2'000'000) text += "some words ";
  const std::string long_file = file("c.txt", text);
  for (const int64_t count : {524287, 524288, 524289, 1'500'000}) {
    EXPECT_EQ(first({long_file}, count), Texts{text.substr(0, count)});
  }
}

TEST_F(DocumentReaderTest, FoldersAreReadByPathWithoutWhatIsNoText) {
  file("in/b.txt", "b");
  file("in/a/z.md", "az");
  file("in/a.txt", "a");
  file("in/.hidden/x.txt", "hidden");
  file("in/picture.png", std::string("\x89PNG\0\0", 6));
  file("in/empty.txt", "");
  file("in/code.py", "code");
  fs::create_directory_symlink(folder_ / "in", folder_ / "in/circle");
  const SourceList list = find_sources({folder_ / "in"}, folder_ / "out");
  ASSERT_EQ(list.passed_over.size(), 1);
  EXPECT_EQ(list.passed_over[0].path, folder_ / "in/circle");
  EXPECT_EQ(list.passed_over[0].why, folder_ / "in/circle" + ": it is a link to a folder");
  DocumentReader input = reader({folder_ / "in"});
  Texts names;
  EXPECT_EQ(documents(reader({folder_ / "in"})), (Texts{"a", "az", "b", "code"}));
  while (input.next()) {}
  for (const Source& source : input.used()) names.push_back(source.name);
  EXPECT_EQ(names, (Texts{folder_ / "in/a.txt", folder_ / "in/a/z.md", folder_ / "in/b.txt", folder_ / "in/code.py"}));
  EXPECT_EQ(reasons(input), (Texts{folder_ / "in/empty.txt" + ": it is empty",
                                   folder_ / "in/picture.png" + ": byte 4 is NUL: it is a binary file, not text"}));
  EXPECT_EQ(documents({folder_ / "in/*.txt"}), (Texts{"a", "b"}));
}

TEST_F(DocumentReaderTest, WhatCannotBeReadInAFolderIsPassedOver) {
  std::string text;
  for (int i = 0; i < 60000; ++i) text += std::to_string(i * 7919) + " ";
  const std::string cut = gzip("short text").substr(0, 15);
  file("in/1.txt", "one");
  file("in/2.gz", cut);
  file("in/3.txt", std::string("\xFF\xFEh\0i\0", 6));
  file("in/4.zst", std::string("no zstd\0", 8));
  file("in/5.jsonl.gz", cut);
  file("in/6.wet", record("conversion", "page") + "WARC/1.0\r\n");
  file("in/7.txt", "seven");
  DocumentReader input = reader({folder_ / "in"});
  fs::remove(folder_ / "in/1.txt");  // after it was found
  EXPECT_EQ(documents(std::move(input)), Texts{"seven"});
  EXPECT_EQ(reasons(input).size(), 6);
  EXPECT_EQ(reasons(input)[0], "cannot read " + (folder_ / "in/1.txt") + ": No such file or directory");
  EXPECT_EQ(reasons(input)[2],
            folder_ / "in/3.txt" + ": it looks like UTF-16; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)");
  EXPECT_EQ(reasons(input)[5],
            folder_ / "in/6.wet" + ": record 2: the file ends within its headers; copy or download it again");
  for (const auto& [source, fault] : input.faults()) EXPECT_FALSE(fault.handed_out) << fault.why;
  EXPECT_EQ(input.used().size(), 1);
  EXPECT_EQ(input.used()[0].name, folder_ / "in/7.txt");
}

// One unsuitable file does not stop the others.
TEST_F(DocumentReaderTest, JsonLinesWithoutATextArePassedOverInAFolder) {
  file("in/a.jsonl", "{\"text\": \"a\"}\n");
  file("in/b.jsonl", "{\"text\": \"b\"}\n{\"content\": \"b\"}\n");
  file("in/c.txt", "{\"content\": \"c\"}\n{\"content\": \"c\"}\n");
  file("in/d.json", "[{\"text\": \"d\"}]");
  file("in/e.txt", "e");
  DocumentReader input = reader({folder_ / "in"});
  while (std::optional<Chunk> chunk = input.next()) input.parsed(std::move(*chunk));
  EXPECT_EQ(
      reasons(input),
      (Texts{folder_ / "in/b.jsonl" + ": line 2: there is no field 'text'; --text-field names the one with the text",
             folder_ / "in/c.txt" + ": line 1: there is no field 'text'; --text-field names the one with the text "
                                    "(the file holds JSON lines, although its name says otherwise)",
             folder_ / "in/d.json" + ": it is JSON, but a list; write each document as an object on a line of its own "
                                     "(jq -c '.[]')"}));
  EXPECT_EQ(input.used().size(), 2);
  EXPECT_EQ(input.disagreements(), Texts{folder_ / "in/c.txt" + " holds JSON lines"});
}

TEST_F(DocumentReaderTest, WhatHasBeenHandedOutOfAFileThatIsPassedOverIsKnown) {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += std::to_string(i * 7919) + " ";
  const std::string packed = gzip("\xEF\xBB\xBF\r\n" + text),
                    lines = gzip("{\"text\": \"a\"}\n" + std::string(2'000'000, ' '));
  for (const auto& [name, bytes] : {std::pair{"in/a.txt.gz", packed}, {"in/a.jsonl.gz", lines}}) {
    const std::string path = file(name, bytes.substr(0, bytes.size() - 8));
    DocumentReader input = reader({folder_ / "in"});
    while (input.next()) {}
    ASSERT_EQ(input.faults().size(), 1) << name;
    EXPECT_TRUE(input.faults().at(0).handed_out) << name;
    EXPECT_EQ(input.used().size(), 0);
    EXPECT_EQ(input.crlf_files() + input.byte_order_mark_files(), 0);
    EXPECT_ERROR(documents({path}), ExitCode::data, "the gzip data are cut off");  // which was named
    fs::remove(path);
  }
}

TEST_F(DocumentReaderTest, SaysWhatIsWrongWithAnInput) {
  const auto sources = [&](const std::string& input) { return find_sources({input}, folder_ / "out"); };
  EXPECT_ERROR(sources(folder_ / "absent.txt"), ExitCode::data,
               "cannot read " + (folder_ / "absent.txt") + ": No such file");
  EXPECT_ERROR(sources(folder_ / "*.txt"), ExitCode::data, "no file matches");
  EXPECT_ERROR(sources(""), ExitCode::data, "an input with an empty name");
  fs::create_directories(folder_ / "bare/.git");
  EXPECT_ERROR(sources(folder_ / "bare"), ExitCode::data, "there is no text file in this folder");
  EXPECT_ERROR(sources("/dev/null"), ExitCode::data, "neither a file nor a folder");
  for (const char* name : {"a.warc.gz", "a.warc", "a.wat.gz"}) {
    EXPECT_ERROR(sources(file(name, "x")), ExitCode::data, "holds web pages");
    fs::remove(folder_ / name);
  }
  EXPECT_ERROR(documents({file("empty.txt", "")}), ExitCode::data, "empty.txt: it is empty");
  EXPECT_ERROR(documents({file("utf16.txt", std::string("\xFF\xFEh\0i\0", 6))}), ExitCode::data,
               "it looks like UTF-16; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)");
  EXPECT_ERROR(documents({file("utf16.txt", "\xFE\xFF\x30\x42\x30\x44")}), ExitCode::data,
               "it looks like UTF-16");  // without NUL
  EXPECT_ERROR(documents({file("utf32.txt", std::string("\xFF\xFE\0\0h\0\0\0", 8))}), ExitCode::data,
               "iconv -f UTF-32");
  EXPECT_EQ(documents({file("packed.txt", gzip("text"))}), Texts{"text"});
  file("out/a.txt", "a");
  EXPECT_ERROR(sources(folder_ / "out/"), ExitCode::config, "is both input and output");
  EXPECT_EQ(find_sources({folder_.path()}, folder_ / "out").sources.size(), 4);  // all but what is in out/
  fs::create_symlink("nowhere", folder_ / "bare/link");
  const SourceList found = find_sources({folder_ / "bar*"}, folder_ / "out");
  EXPECT_EQ(found.sources.size(), 0);
  ASSERT_EQ(found.passed_over.size(), 2);
  EXPECT_EQ(found.passed_over[0].why, folder_ / "bare" +
                                          ": there is no text file in this folder apart from what is left "
                                          "out: 1 hidden file or folder");
  EXPECT_EQ(found.passed_over[1].why, folder_ / "bare/link" + ": it is a broken link, or not accessible");
}

TEST_F(DocumentReaderTest, StandardInputIsReadAsItsSuffixSays) {
  const Source plain = find_sources({"-"}, "out").sources[0];
  EXPECT_EQ(plain.name, "standard input");
  EXPECT_TRUE(plain.stream);
  EXPECT_EQ(plain.kind, TextKind::plain);
  const Source lines = find_sources({"-.jsonl.zst"}, "out").sources[0];
  EXPECT_EQ(lines.path, "-");
  EXPECT_EQ(lines.kind, TextKind::json_lines);
  EXPECT_EQ(lines.packing, Packing::zstd);
  ASSERT_EQ(mkfifo((folder_ / "pipe.jsonl").c_str(), 0600), 0);
  const Source pipe = find_sources({folder_ / "pipe.jsonl"}, "out").sources[0];
  EXPECT_TRUE(pipe.stream);
  EXPECT_EQ(pipe.kind, TextKind::json_lines);
}

TEST_F(DocumentReaderTest, AnUnreadableFileIsNamed) {
  if (geteuid() == 0) GTEST_SKIP() << "root reads everything";
  const std::string path = file("secret.txt", "x");
  chmod(path.c_str(), 0);
  EXPECT_ERROR(documents({path}), ExitCode::data, "cannot read " + path + ": Permission denied");
}

}  // namespace
}  // namespace gpt::prepare
