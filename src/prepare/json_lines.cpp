#include "json_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "gpt/chat/dialogue.h"
#include "gpt/tokenizer/utf8.h"

namespace gpt::prepare {
namespace {

using nlohmann::json;

// Takes one field out of an object as it is parsed; nothing else of the line is kept.
class FieldReader final : public nlohmann::json_sax<json> {
 public:
  explicit FieldReader(const std::string& field) : field_(&field) {}

  std::optional<std::string> text;
  std::string wrong_type;  // the field's type, where it is not a string
  bool is_object = false;
  size_t error_at = 0;

  bool null() override {
    if (is_field()) text = "";  // how pandas writes a text that is missing
    return true;
  }
  bool boolean(bool) override { return other("a boolean"); }
  bool number_integer(number_integer_t) override { return other("a number"); }
  bool number_unsigned(number_unsigned_t) override { return other("a number"); }
  bool number_float(number_float_t, const string_t&) override { return other("a number"); }
  bool binary(binary_t&) override { return other("binary"); }
  bool string(string_t& value) override {
    if (is_field()) text = std::move(value);
    return true;
  }
  bool key(string_t& value) override {
    if (depth_ == 1) in_field_ = value == *field_;
    return true;
  }
  bool start_object(size_t) override {
    if (depth_ == 0) is_object = true;
    return open("an object");
  }
  bool start_array(size_t) override { return open("a list"); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    error_at = position;
    return false;
  }

 private:
  bool is_field() const { return depth_ == 1 && in_field_; }
  bool other(const char* type) {
    if (is_field()) wrong_type = type;
    return true;
  }
  bool open(const char* type) {
    other(type);
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  const std::string* field_;
  size_t depth_ = 0;
  bool in_field_ = false;
};

// The value of the four hexadecimal digits of "\\uXXXX" at `at`; nothing where that is no such escape.
std::optional<uint32_t> escaped_unit(std::string_view text, size_t at) {
  uint32_t unit = 0;
  if (text.substr(at, 2) != "\\u" || at + 6 > text.size()) return std::nullopt;
  const char* const digits = text.data() + at + 2;
  if (std::from_chars(digits, digits + 4, unit, 16).ptr != digits + 4) return std::nullopt;
  return unit;
}

constexpr bool is_high_surrogate(uint32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
constexpr bool is_low_surrogate(uint32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The length of the number that JSON has at the beginning of `text`; 0 where there is none.
size_t number_length(std::string_view text) {
  size_t at = text.starts_with('-') ? 1 : 0;
  const auto digits = [&] {
    const size_t begin = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return at - begin;
  };
  const bool begins_with_zero = text.substr(at).starts_with('0');
  const size_t whole = digits();
  if (whole == 0 || (whole > 1 && begins_with_zero)) return 0;
  if (text.substr(at).starts_with('.') && (++at, digits() == 0)) return 0;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (digits() == 0) return 0;
  }
  return at;
}

// What the parser does not read, in a form that it does: Python's NaN and Infinity, and numbers of any size, become small numbers of the
// same length, lone surrogates and invalid UTF-8 become U+FFFD.
class JsonRepair {
 public:
  explicit JsonRepair(std::string_view line) : line_(line) {
    while (at_ < line_.size()) in_string_ ? step_in_string() : step();
  }
  const std::string& result() const { return result_; }
  int64_t replaced() const { return replaced_; }

 private:
  void keep(size_t count) {
    result_ += line_.substr(at_, count);
    at_ += std::min(count, line_.size() - at_);
  }
  void put(std::string_view text, size_t instead_of) {
    result_ += text;
    at_ += instead_of;
  }
  void step() {
    const std::string_view rest = line_.substr(at_);
    if (rest.starts_with("NaN")) return put("0.0", 3);
    if (rest.starts_with("Infinity")) return put("0.000000", 8);
    if (const size_t length = number_length(rest); length > 0) return put("0" + std::string(length - 1, ' '), length);
    in_string_ = rest[0] == '"';
    keep(std::max<size_t>(1, std::min(rest.find_first_not_of("+-.0123456789"), rest.size())));  // "--1" stays none
  }
  void step_in_string() {
    if (line_[at_] == '\\') return step_over_escape();
    const utf8::Scan scanned = utf8::scan(line_, at_);
    if (scanned.kind != utf8::Scan::whole) return replace("\xEF\xBF\xBD", scanned.bytes);
    in_string_ = line_[at_] != '"';
    keep(scanned.bytes);
  }
  void step_over_escape() {
    const auto unit = escaped_unit(line_, at_);
    if (!unit || (!is_high_surrogate(*unit) && !is_low_surrogate(*unit))) return keep(2);
    const bool is_pair = is_high_surrogate(*unit) && is_low_surrogate(escaped_unit(line_, at_ + 6).value_or(0));
    is_pair ? keep(12) : replace("\\ufffd", 6);
  }
  void replace(std::string_view text, size_t instead_of) {
    put(text, instead_of);
    ++replaced_;
  }

  const std::string_view line_;
  size_t at_ = 0;
  bool in_string_ = false;
  std::string result_;
  int64_t replaced_ = 0;
};

// What to do with a line that is a conversation among texts; otherwise empty.
std::string advice_on_conversations(std::string_view line) {
  int64_t ignored = 0;
  const auto shape = chat::shape_of(parse_leniently(line, ignored), /*text_field=*/"");
  if (!shape) return "";
  return fmt::format(
      "the line is a conversation ('{}'), and gpt-train learns from a file that holds nothing else: gpt-train --init_from MODEL "
      "--data FILE",
      chat::name_of(*shape));
}

// The canonical form of a conversation.
std::string read_conversation(std::string_view line, chat::ConversationShape shape, std::string& why,
                              int64_t& replaced) {
  try {
    return chat::as_json(chat::read_conversation(parse_leniently(line, replaced), shape)).dump();
  } catch (const Error& error) {
    why = error.what();
    return "";
  }
}

// The field's text, or why there is none.
std::string read_field(std::string_view line, const std::string& field, std::string& why, int64_t& replaced) {
  FieldReader reader(field);
  bool is_json = json::sax_parse(line.begin(), line.end(), &reader);
  if (!is_json) {  // strictly
    const JsonRepair repair(line);
    reader = FieldReader(field);
    is_json = json::sax_parse(repair.result(), &reader);
    replaced += repair.replaced();
  }
  if (!is_json) {
    why = fmt::format("byte {}: it is not valid JSON", reader.error_at);
  } else if (!reader.is_object) {
    why = "a JSON object is needed";
  } else if (!reader.wrong_type.empty()) {
    why = fmt::format("'{}' is {}; a string is needed", field, reader.wrong_type);
    if (const std::string advice = advice_on_conversations(line); !advice.empty()) why += "; " + advice;
  } else if (!reader.text) {
    const std::string advice = advice_on_conversations(line);
    why = fmt::format("there is no field '{}'; {}", field,
                      advice.empty() ? "--text-field names the one with the text" : advice);
  } else {
    return std::move(*reader.text);
  }
  return {};
}

}  // namespace

json parse_leniently(std::string_view line, int64_t& replaced) {
  if (json strict = json::parse(line, nullptr, /*allow_exceptions=*/false); !strict.is_discarded()) return strict;
  const JsonRepair repair(line);
  try {
    json repaired = json::parse(repair.result());
    replaced += repair.replaced();
    return repaired;
  } catch (const json::parse_error& error) {
    throw Error(ExitCode::data, fmt::format("byte {}: it is not valid JSON", error.byte));
  }
}

bool is_json(std::string_view text) { return json::accept(text) || json::accept(JsonRepair(text).result()); }

JsonDocuments parse_json_lines(std::string_view lines, const std::string& field, const DocumentPart& first,
                               const std::string& name, std::optional<chat::ConversationShape> shape) {
  JsonDocuments result;
  Chunk& chunk = result.chunk;
  chunk.text.reserve(lines.size());
  DocumentPart part = first;
  for (size_t begin = 0, end; begin < lines.size(); begin = end + 1, ++part.position) {
    end = std::min(lines.find('\n', begin), lines.size());
    const std::string_view line = lines.substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    std::string why;
    const std::string text = shape ? read_conversation(line, *shape, why, result.replaced_characters)
                                   : read_field(line, field, why, result.replaced_characters);
    if (!why.empty()) throw BadJsonLine(fmt::format("{}: line {}: {}", name, part.position, why), part.position);
    if (text.empty()) continue;
    chunk.text += text;
    part.end = chunk.text.size();
    part.document = part.position;
    part.key = document_key(text);
    chunk.parts.push_back(part);
  }
  return result;
}

}  // namespace gpt::prepare
