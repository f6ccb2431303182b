#include "content.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "gpt/core/format.h"
#include "gpt/prepare/plain_text.h"
#include "json_lines.h"

namespace gpt::prepare {
namespace {

using namespace std::string_view_literals;

constexpr size_t kHead = 1 << 16;  // text has no NUL there; after it one is data like any other byte

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

bool is_gzip(std::string_view head) { return head.starts_with("\x1f\x8b"); }

// A frame, or one of those that a reader skips, which some writers put first.
bool is_zstd(std::string_view head) {
  return head.starts_with("\x28\xb5\x2f\xfd") ||
         (head.size() >= 4 && (head[0] & '\xf0') == '\x50' && head.substr(1, 3) == "\x2a\x4d\x18");
}

// A name that ends with .gz may be all that is left of the packing, where a browser has unpacked the file.
Packing packing_of(const Source& source, Lookahead& file) {
  const std::string_view head = file.peek(4);
  if (is_gzip(head)) return Packing::gzip;
  if (is_zstd(head)) return Packing::zstd;
  if (source.packing == Packing::none || head.size() < 4) return source.packing;
  return why_no_text(file.peek(kHead)).empty() ? Packing::none : source.packing;
}

bool is_json_object(std::string_view text) { return text.starts_with('{') && is_json(text); }

// Where the head ends within the first line, all of it has to be the beginning of an object with a string or more for its keys.
bool begins_json_object(std::string_view text) {
  struct Beginning : nlohmann::json_sax<nlohmann::json> {
    size_t stopped_at = 0;
    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_float(number_float_t, const string_t&) override { return true; }
    bool string(string_t&) override { return true; }
    bool binary(binary_t&) override { return true; }
    bool start_object(size_t) override { return true; }
    bool key(string_t&) override { return true; }
    bool end_object() override { return true; }
    bool start_array(size_t) override { return true; }
    bool end_array() override { return true; }
    bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
      stopped_at = position;
      return false;
    }
  } beginning;
  if (!text.starts_with('{')) return false;
  return nlohmann::json::sax_parse(text.begin(), text.end(), &beginning) || beginning.stopped_at >= text.size();
}

// The first two lines that are not empty, or the only one, are objects.
bool holds_json_lines(std::string_view head) {
  const bool is_whole = head.size() < kHead;
  if (head.starts_with(kByteOrderMark)) head.remove_prefix(kByteOrderMark.size());
  int objects = 0;
  while (objects < 2) {
    const size_t begin = head.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) break;
    head.remove_prefix(begin);
    const size_t end = head.find('\n');
    if (end == std::string_view::npos && !is_whole) return objects > 0 || begins_json_object(head);
    if (!is_json_object(trimmed(head.substr(0, end)))) return false;
    ++objects;
    head.remove_prefix(std::min(end, head.size()));
  }
  return objects > 0;
}

// A name that says JSON may mean one value over many lines.
void require_lines(const Source& source, std::string_view head) {
  if (head.starts_with(kByteOrderMark)) head.remove_prefix(kByteOrderMark.size());
  head = trimmed(head);
  const bool is_list = head.starts_with('[');
  if (!is_list && trimmed(head.substr(0, head.find('\n'))) != "{") return;
  throw UnreadableSource(
      source.name, fmt::format("it is JSON, but {}; write each document as an object on a line of its own (jq -c '{}')",
                               is_list ? "a list" : "an object over several lines", is_list ? ".[]" : "."));
}

TextKind kind_of(const Source& source, std::string_view head) {
  if (head.starts_with("WARC/1.") || source.kind == TextKind::wet) return TextKind::wet;
  if (const std::string why = why_no_text(head); !why.empty()) throw UnreadableSource(source.name, why);
  if (source.kind == TextKind::plain) return holds_json_lines(head) ? TextKind::json_lines : TextKind::plain;
  require_lines(source, head);
  return source.kind;
}

const char* name_of(Packing packing) { return packing == Packing::gzip ? "gzip" : "zstd"; }

const char* name_of(TextKind kind) {
  return kind == TextKind::json_lines ? "JSON lines" : kind == TextKind::wet ? "Common Crawl's records" : "text";
}

}  // namespace

Content open_content(const Source& source, std::unique_ptr<ByteStream> file) {
  auto packed = std::make_unique<Lookahead>(std::move(file));
  Content content{.kind = source.kind, .packing = packing_of(source, *packed), .bytes = nullptr};
  content.bytes = std::make_unique<Lookahead>(unpack(std::move(packed), content.packing, source.name));
  const std::string_view head = content.bytes->peek(kHead);
  content.kind = kind_of(source, head);
  if (head.starts_with(kByteOrderMark)) content.byte_order_mark = kByteOrderMark.size();
  content.has_cr_lines = content.kind == TextKind::plain && has_cr_lines(head);
  return content;
}

std::optional<Markup> markup_of(const Source& source, const Content& content) {
  if (content.kind != TextKind::plain) return std::nullopt;
  std::string_view head = content.bytes->peek(kHead);
  head.remove_prefix(content.byte_order_mark);
  const std::string begin = lower_case(trimmed(head.substr(0, 1024))), name = lower_case(source.name);
  const auto is_called = [&name](std::initializer_list<const char*> endings) {
    return std::any_of(endings.begin(), endings.end(), [&](const std::string& ending) {
      return name.ends_with(ending) || name.ends_with(ending + ".gz") || name.ends_with(ending + ".zst");
    });
  };
  if (begin.starts_with("<!doctype html") || begin.starts_with("<html") || is_called({".html", ".htm", ".xhtml"})) {
    return Markup{source.name, "is HTML, and its tags are learned as text", "pandoc -t plain FILE -o FILE.txt"};
  }
  if (begin.starts_with("<?xml") || is_called({".xml"}))
    return Markup{source.name, "is XML, and its tags are learned as text",
                  "xmllint --xpath 'string(/)' FILE > FILE.txt"};
  if (!is_called({".csv", ".tsv"})) return std::nullopt;
  const bool has_tabs = is_called({".tsv"});
  return Markup{
      source.name,
      has_tabs ? "is a table (TSV), and all of its columns are learned, with the tabs between them"
               : "is a table (CSV), and all of its columns are learned, with the commas between them",
      fmt::format("python3 -c \"import pandas; pandas.read_csv('FILE'{}).to_json('FILE.jsonl', orient='records', "
                  "lines=True)\", and --text-field COLUMN",
                  has_tabs ? ", sep='\\t'" : "")};
}

std::string disagreement(const Source& source, const Content& content) {
  std::string facts;
  if (content.packing != source.packing) {
    facts = content.packing == Packing::none ? fmt::format("is not packed with {}", name_of(source.packing))
                                             : fmt::format("is packed with {}", name_of(content.packing));
  }
  if (content.kind != source.kind)
    facts += fmt::format("{}holds {}", facts.empty() ? "" : " and ", name_of(content.kind));
  return facts.empty() ? "" : fmt::format("{} {}", source.name, facts);
}

std::string describe(TextKind kind, Packing packing) {
  return packing == Packing::none ? name_of(kind) : fmt::format("{} in {}", name_of(kind), name_of(packing));
}

}  // namespace gpt::prepare
