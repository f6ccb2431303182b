#include "gpt/prepare/plain_text.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

namespace gpt {
namespace {

using namespace std::string_view_literals;

// Formats of other things than text that begin without a NUL, or that say where the text may be found.
std::string other_format(std::string_view head) {
  struct Format {
    std::string_view begins, what;
  };
  constexpr Format kFormats[] = {
      {"\xfd"
       "7zXZ\0"sv,
       "compressed with xz; unpack it (xz -d), or pack it with gzip or zstd"},
      {"BZh", "compressed with bzip2; unpack it (bzip2 -d), or pack it with gzip or zstd"},
      {"PK\x03\x04", "a zip archive, such as .zip, .docx or .epub; unpack it, or save its text as .txt"},
      {"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it"},
      {"Rar!\x1a", "a rar archive; unpack it"},
      {"%PDF-", "a PDF; save its text as .txt (pdftotext)"},
      {"{\\rtf", "a document in RTF; save it as plain text"},
      {"PAR1", "a Parquet table; write its text column as JSON lines"},
      {"ARROW1", "an Arrow table; write its text column as JSON lines"},
      {"\x93NUMPY", "an array of NumPy's; token ids are given as data.bin (--bin FILE)"},
      {"\xd0\xcf\x11\xe0", "a document of an old office program; save its text as .txt"},
  };
  for (const Format& format : kFormats) {
    const bool is_a_word =
        format.begins == "BZh" && !(head.size() > 9 && head.substr(4, 6) == "\x31\x41\x59\x26\x53\x59");
    if (head.starts_with(format.begins) && !is_a_word) return fmt::format("it is {}", format.what);
  }
  if (head.size() > 262 && head.substr(257, 5) == "ustar") return "it is a tar archive; unpack it";
  return "";
}

}  // namespace

std::string why_no_text(std::string_view head) {
  if (head.empty() || head == kByteOrderMark) return "it is empty";
  for (const auto& [mark, encoding] : {std::pair{"\xff\xfe\0\0"sv, "UTF-32"},
                                       {"\0\0\xfe\xff"sv, "UTF-32"},
                                       {"\xff\xfe"sv, "UTF-16"},
                                       {"\xfe\xff"sv, "UTF-16"}}) {
    if (head.starts_with(mark))
      return fmt::format("it looks like {0}; convert it to UTF-8 (iconv -f {0} -t UTF-8)", encoding);
  }
  if (std::string other = other_format(head); !other.empty()) return other;
  const size_t nul = head.find('\0');
  if (nul == std::string_view::npos) return "";
  return fmt::format("byte {} is NUL: it is a binary file, not text", nul);
}

std::string as_plain_text(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (!text.substr(i).starts_with("\r\n")) result += text[i];
  }
  return result;
}

}  // namespace gpt
