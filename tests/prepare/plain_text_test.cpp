#include "gpt/prepare/plain_text.h"

#include <gtest/gtest.h>

namespace gpt::prepare {
namespace {

TEST(PlainText, HasNeitherByteOrderMarkNorCrlf) {
  EXPECT_EQ(as_plain_text("\ufeffa\r\nb\r\n"), "a\nb\n");
  EXPECT_EQ(as_plain_text("a\rb\r"), "a\nb\n");
  EXPECT_EQ(as_plain_text("a\nb\r"), "a\nb\r");    // a CR alone is text
  EXPECT_EQ(as_plain_text("a\r\r\nb"), "a\r\nb");  // and so is one before CRLF
  EXPECT_EQ(as_plain_text("a\ufeff"), "a\ufeff");  // only the first is a mark
  EXPECT_EQ(as_plain_text(""), "");
}

TEST(PlainText, SaysWhatOtherFilesAre) {
  EXPECT_EQ(why_no_text("\ufefftext"), "");
  EXPECT_NE(why_no_text("\xFF\xFE t").find("UTF-16"), std::string::npos);
  EXPECT_NE(why_no_text(std::string_view("a\0b", 3)).find("binary"), std::string::npos);
  for (const auto& [head, says] :
       {std::pair{"PK\x03\x04..word/document.xml", "a Word document; take its text out (pandoc"},
        {"PK\x03\x04..mimetypeapplication/epub+zip", "an e-book (EPUB); take its text out (pandoc"},
        {"PK\x03\x04..notes.txt", "a zip archive; unpack it"},
        {"%PDF-1.4", "pdftotext"},
        {"PAR1", "pandas.read_parquet"},
        {"\x80\x04\x95", "a pickle of Python's"}})
    EXPECT_NE(why_no_text(head).find(says), std::string::npos) << why_no_text(head);
}

}  // namespace
}  // namespace gpt::prepare
