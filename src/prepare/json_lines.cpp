#include "json_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "gpt/core/error.h"

namespace gpt {
namespace {

using nlohmann::json;

// Takes one field out of an object as it is parsed; nothing else of the line is kept.
class FieldReader final : public nlohmann::json_sax<json> {
 public:
  explicit FieldReader(const std::string& field) : field_(field) {}

  std::optional<std::string> text;
  std::string wrong_type;  // of the field, where it is not a string
  bool is_object = false;
  size_t error_at = 0;

  bool null() override { return other("null"); }
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
    if (depth_ == 1) in_field_ = value == field_;
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

  const std::string& field_;
  size_t depth_ = 0;
  bool in_field_ = false;
};

// The field's text, or why there is none.
std::string read_field(std::string_view line, const std::string& field, std::string& why) {
  FieldReader reader(field);
  if (!json::sax_parse(line.begin(), line.end(), &reader)) {
    why = fmt::format("byte {}: it is not valid JSON", reader.error_at);
  } else if (!reader.is_object) {
    why = "a JSON object is needed";
  } else if (!reader.wrong_type.empty()) {
    why = fmt::format("'{}' is {}; a string is needed", field, reader.wrong_type);
  } else if (!reader.text) {
    why = fmt::format("there is no field '{}'; --text-field names the one with the text", field);
  } else {
    return std::move(*reader.text);
  }
  return {};
}

}  // namespace

Chunk parse_json_lines(std::string_view lines, const std::string& field, const DocumentPart& first,
                       const std::string& name) {
  Chunk chunk;
  chunk.text.reserve(lines.size());
  DocumentPart part = first;
  for (size_t begin = 0, end; begin < lines.size(); begin = end + 1, ++part.position) {
    end = std::min(lines.find('\n', begin), lines.size());
    const std::string_view line = lines.substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    std::string why;
    const std::string text = read_field(line, field, why);
    if (!why.empty()) throw Error(ExitCode::data, fmt::format("{}: line {}: {}", name, part.position, why));
    if (text.empty()) continue;
    chunk.text += text;
    part.end = chunk.text.size();
    part.key = document_key(text);
    chunk.parts.push_back(part);
  }
  return chunk;
}

}  // namespace gpt
