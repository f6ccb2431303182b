// What is known of a terminal without asking it.
#pragma once

namespace gpt {

// The columns of the terminal behind a descriptor; 0 where there is none, or none on which a line can be redrawn.
int terminal_columns(int descriptor);

// Columns that text to be read is wrapped at: few enough for the eye, and 80 for a file or a pipe.
int reading_columns(int descriptor);

// Whether characters beyond ASCII are readable, by LC_ALL, LC_CTYPE or LANG. The locale itself need not be installed.
bool locale_is_utf8();

}  // namespace gpt
