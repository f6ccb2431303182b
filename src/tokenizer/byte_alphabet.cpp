#include "gpt/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "gpt/tokenizer/utf8.h"

namespace gpt::byte_alphabet {
namespace {

constexpr char32_t kFirstSubstitute = 0x100;
constexpr int kSubstitutes = 68;

constexpr bool is_visible(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);  // 0xAD: the soft hyphen
}

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int16_t, kFirstSubstitute + kSubstitutes> byte{};  // -1: in no spelling
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.byte) byte = -1;
  char32_t substitute = kFirstSubstitute;
  for (int byte = 0; byte < 256; ++byte) {
    alphabet.character[byte] = is_visible(byte) ? static_cast<char32_t>(byte) : substitute++;
    alphabet.byte[alphabet.character[byte]] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

char32_t character(unsigned char byte) { return kAlphabet.character[byte]; }

std::string spell(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) utf8::append(spelling, character(static_cast<unsigned char>(byte)));
  return spelling;
}

std::optional<std::string> bytes(std::string_view spelling) {
  std::string bytes;
  for (size_t offset = 0; offset < spelling.size();) {
    const auto [value, length] = utf8::decode(spelling, offset);
    if (value >= kAlphabet.byte.size() || kAlphabet.byte[value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte[value]));
    offset += length;
  }
  return bytes;
}

}  // namespace gpt::byte_alphabet
