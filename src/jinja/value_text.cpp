// How values read: str(), repr() and json.dumps().
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpt/core/utf8.h"
#include "operators.h"
#include "python_text.h"

namespace gpt::jinja {
namespace {

std::string plain_text_of(const Value& value) {
  if (value.is_none()) return "None";
  if (value.boolean()) return *value.boolean() ? "True" : "False";
  if (value.integer()) return std::to_string(*value.integer());
  if (value.real()) return written(*value.real());
  throw Failure{fmt::format("a {} has no text", value.type_name())};
}

void append_quoted_list(std::string& text, const List& list, Runtime& runtime) {
  text += list.is_tuple ? '(' : '[';
  for (size_t i = 0; i < list.items.size(); ++i) (text += i > 0 ? ", " : "") += quoted_text_of(list.items[i], runtime);
  if (list.is_tuple && list.items.size() == 1) text += ',';
  text += list.is_tuple ? ')' : ']';
}

void append_quoted_mapping(std::string& text, const Mapping& mapping, Runtime& runtime) {
  text += '{';
  for (const auto& [key, item] : mapping.entries) {
    if (text.size() > 1) text += ", ";
    text += quoted_text_of(key, runtime) + ": " + quoted_text_of(item, runtime);
  }
  text += '}';
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Runtime& runtime) : style_(style), runtime_(runtime) {}

  std::string take() { return std::move(text_); }

  void write(const Value& value) {
    const size_t before = text_.size();
    if (value.text()) {
      write_text(*value.text());
    } else if (value.list()) {
      const std::vector<Value>& items = value.list()->items;
      write_parts('[', ']', items.size(), [&](size_t i) { write(items[i]); });
    } else if (value.mapping()) {
      write_mapping(*value.mapping());
    } else if (value.is_none() || value.boolean()) {
      text_ += value.is_none() ? "null" : *value.boolean() ? "true" : "false";
    } else if (value.real() && !std::isfinite(*value.real())) {
      text_ += std::isnan(*value.real()) ? "NaN" : *value.real() > 0 ? "Infinity" : "-Infinity";
    } else if (value.integer() || value.real()) {
      text_ += plain_text_of(value);
    } else {
      throw Failure{fmt::format("a {} is not JSON", value.type_name())};
    }
    runtime_.charge(16 + text_.size() - before);
  }

 private:
  template <class Writer>
  void write_parts(char open, char close, size_t count, const Writer& write_part) {
    text_ += open;
    ++level_;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) text_ += style_.between_items;
      new_line();
      write_part(i);
    }
    --level_;
    if (count > 0) new_line();
    text_ += close;
  }

  void new_line() {
    if (!style_.indent) return;
    text_ += '\n';
    for (int i = 0; i < level_; ++i) text_ += *style_.indent;
    runtime_.charge(style_.indent->size() * static_cast<size_t>(level_));
  }

  void write_mapping(const Mapping& mapping) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : mapping.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) { return compare(a->first, b->first, runtime_) < 0; });
    }
    write_parts('{', '}', entries.size(), [&](size_t i) {
      const Value& key = entries[i]->first;
      if (key.text()) {
        write(key);
      } else {
        text_ += '"';
        write(key);
        text_ += '"';
      }
      text_ += style_.after_key;
      write(entries[i]->second);
    });
  }

  void write_text(std::string_view text) {
    constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    text_ += '"';
    for (size_t i = 0; i < text.size();) {
      const utf8::Scan next = utf8::scan(text, i);
      const auto code = static_cast<uint32_t>(next.value);
      if (const size_t escape = code < 0x80 ? kEscaped.find(text[i]) : std::string_view::npos;
          escape != std::string_view::npos) {
        (text_ += '\\') += kLetters[escape];
      } else if (code < 0x20 || (style_.ensure_ascii && code > 0x7E && code < 0x10000)) {
        text_ += fmt::format("\\u{:04x}", code);
      } else if (style_.ensure_ascii && code >= 0x10000) {
        text_ +=
            fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF));
      } else {
        text_ += text.substr(i, next.bytes);
      }
      i += next.bytes;
    }
    text_ += '"';
  }

  const JsonStyle& style_;
  Runtime& runtime_;
  int level_ = 0;
  std::string text_;
};

}  // namespace

std::string quoted_text_of(const Value& value, Runtime& runtime) {
  std::string text;
  if (value.is_undefined()) return "Undefined";
  if (value.text()) {
    text = repr(*value.text());
  } else if (value.list()) {
    append_quoted_list(text, *value.list(), runtime);
  } else if (value.mapping()) {
    append_quoted_mapping(text, *value.mapping(), runtime);
  } else {
    text = plain_text_of(value);
  }
  runtime.charge(16 + text.size());
  return text;
}

std::string text_of(const Value& value, Runtime& runtime) {
  if (value.is_undefined()) return "";
  if (!value.text()) return quoted_text_of(value, runtime);
  runtime.charge(value.text()->size());
  return *value.text();
}

std::string json_of(const Value& value, const JsonStyle& style, Runtime& runtime) {
  JsonWriter writer(style, runtime);
  writer.write(value);
  return writer.take();
}

}  // namespace gpt::jinja
