#include "gpt/prepare/plain_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace gpt::prepare {
namespace {

using namespace std::string_view_literals;

// The documents that are zip archives of XML, by the names of their first members.
const char* document_in_zip(std::string_view head) {
  const auto has = [head](std::string_view name) { return head.find(name) != std::string_view::npos; };
  if (!head.starts_with("PK\x03\x04")) return nullptr;
  if (has("application/epub+zip")) return "an e-book (EPUB)";
  if (has("application/vnd.oasis.opendocument")) return "an OpenDocument file";
  if (has("word/document.xml") || has("word/_rels")) return "a Word document";
  return nullptr;
}

// Formats of other things than text that begin without a NUL, or that say where the text may be found.
std::string other_format(std::string_view head) {
  if (const char* document = document_in_zip(head))
    return fmt::format("it is {0}; take its text out (pandoc -t plain FILE -o FILE.txt)", document);
  struct Format {
    std::string_view begins, what;
  };
  constexpr Format kFormats[] = {
      {"\xfd"
       "7zXZ\0"sv,
       "compressed with xz; unpack it (xz -d), or pack it with gzip or zstd"},
      {"BZh", "compressed with bzip2; unpack it (bzip2 -d), or pack it with gzip or zstd"},
      {"PK\x03\x04", "a zip archive; unpack it"},
      {"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it"},
      {"Rar!\x1a", "a rar archive; unpack it"},
      {"%PDF-", "a PDF; take its text out (pdftotext FILE.pdf FILE.txt)"},
      {"{\\rtf", "a document in RTF; take its text out (pandoc -t plain FILE.rtf -o FILE.txt)"},
      {"PAR1",
       "a Parquet table; write it as JSON lines (python3 -c \"import pandas; pandas.read_parquet('FILE').to_json('FILE.jsonl', "
       "orient='records', lines=True)\"), and name its column with --text-field"},
      {"ARROW1",
       "an Arrow table; write it as JSON lines (python3 -c \"import pandas; pandas.read_feather('FILE').to_json('FILE.jsonl', "
       "orient='records', lines=True)\"), and name its column with --text-field"},
      {"\x93NUMPY", "an array of NumPy's; token ids are given as data.bin (--bin FILE)"},
      {"\xd0\xcf\x11\xe0", "a document of an old office program; save its text as .txt"},
  };
  for (const Format& format : kFormats) {
    const bool is_a_word =
        format.begins == "BZh" && !(head.size() > 9 && head.substr(4, 6) == "\x31\x41\x59\x26\x53\x59");
    if (head.starts_with(format.begins) && !is_a_word) return fmt::format("it is {}", format.what);
  }
  if (head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5)
    return "it is a pickle of Python's, which could run any program, so it is not read; let Python write its text as .txt, or "
           "its token ids with numpy.save, for --bin";
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

bool has_cr_lines(std::string_view head) {
  const size_t first = head.find('\r');  // one alone may be half of a line end that is cut off
  return first != std::string_view::npos && head.find('\r', first + 1) != std::string_view::npos &&
         head.find('\n') == std::string_view::npos;
}

std::string as_plain_text(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::string result;
  if (has_cr_lines(text)) {
    std::replace_copy(text.begin(), text.end(), std::back_inserter(result), '\r', '\n');
    return result;
  }
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (!text.substr(i).starts_with("\r\n")) result += text[i];
  }
  return result;
}

}  // namespace gpt::prepare
