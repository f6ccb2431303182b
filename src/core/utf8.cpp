#include "gpt/core/utf8.h"

namespace gpt::utf8 {

Scan scan(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Scan::whole, 1, lead};
  if (lead < 0xC2 || lead > 0xF4) return {Scan::broken, 1, 0};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  char32_t value = lead & (0x7F >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if (offset + i == text.size()) return {Scan::unfinished, i, 0};
    // The second byte's range excludes overlong forms, surrogates and values above U+10FFFF.
    const unsigned char lowest = i > 1 ? 0x80 : lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned char highest = i > 1 ? 0xBF : lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(i) < lowest || byte(i) > highest) return {Scan::broken, i, 0};
    value = value << 6 | (byte(i) & 0x3F);
  }
  return {Scan::whole, bytes, value};
}

bool is_valid(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Scan next = scan(text, i);
    if (next.kind != Scan::whole) return false;
    i += next.bytes;
  }
  return true;
}

size_t last_character(std::string_view text) {
  size_t start = text.empty() ? 0 : text.size() - 1;
  while (start > 0 && !begins_character(text[start])) --start;
  return start;
}

void append(std::string& text, char32_t value) {
  const auto put = [&text](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (value < 0x80) return put(value);
  if (value < 0x800) {
    put(0xC0 | value >> 6);
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3F));
  } else {
    put(0xF0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3F));
    put(0x80 | (value >> 6 & 0x3F));
  }
  put(0x80 | (value & 0x3F));
}

}  // namespace gpt::utf8
