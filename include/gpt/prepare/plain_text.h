// Text in files as editors write them: the same text gives the same tokens in training and as a prompt.
#pragma once

#include <string>
#include <string_view>

namespace gpt::prepare {

inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // the mark of UTF-8

// Why a file that begins with these bytes is no text; empty where it is.
std::string why_no_text(std::string_view head);

// Whether lines end with CR alone, as on old Macs: there are several, and no LF.
bool has_cr_lines(std::string_view head);

// The text without a byte-order mark at its start, and with LF in place of CRLF or of CR, as DocumentReader reads text files.
std::string as_plain_text(std::string_view text);

}  // namespace gpt::prepare
