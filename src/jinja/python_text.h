// Texts as Python's str has them: by characters, not by bytes. All texts are valid UTF-8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gpt::jinja {

bool is_white(char32_t character);
std::string_view strip_begin(std::string_view text);
std::string_view strip_end(std::string_view text);

enum class Sides { both, left, right };
// `characters`: those that are taken away; nothing: white space.
std::string_view strip(std::string_view text, const std::string* characters, Sides sides);

int64_t length(std::string_view text);
std::vector<std::string_view> characters(std::string_view text);

// Without a separator: at white space, of which none is left. `most` cuts, from the left or from the right; below 0: at all places.
std::vector<std::string_view> split(std::string_view text, const std::string* separator, int64_t most, bool from_right);
std::vector<std::string_view> split_lines(std::string_view text);
std::string replace(std::string_view text, std::string_view old, std::string_view by, int64_t most);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);  // a word is what letters make up
bool is_letter(char32_t character);

std::string repr(std::string_view text);
std::string written(double number);  // repr(number)

}  // namespace gpt::jinja
