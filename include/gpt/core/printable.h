// Names, arguments and what files hold may be any bytes, some of which command a terminal. Everything that people are shown passes
// through here.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gpt {

// C0 but \n and \t, DEL and C1, which a terminal obeys, and the bidirectional controls, which reorder what it shows.
bool commands_terminal(char32_t character);

// The text with such characters, and bytes that are no UTF-8, spelled out, as in \x1b or \u202e.
std::string printable(std::string_view text);

// The same without line ends and tabs either: a value within a message.
std::string printable_line(std::string_view text);

// The text without its middle, which "..." stands for, where it has more than `most` bytes. No character is cut.
std::string shortened(std::string_view text, size_t most);

// In quotes that a shell takes off again; the second only where one would not take the text as it is.
std::string shell_quoted(const std::string& text);
std::string shell_word(const std::string& text);

// Writes to standard output, and printably where that is a terminal.
void print(std::string_view text);

}  // namespace gpt
