// The pages of the documentation, for --manual: those of the checkout around build/bin, or those that were installed.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace gpt::config {

// Files of pages by topic, which is the name of the folder that a page is about ("run"), or "gpt-train" for README.md at the top.
std::map<std::string, std::string> manual_pages();

// A page as it is read in a terminal: paragraphs wrapped at so many columns, 0 = not at all, and links without their addresses. Throws
// gpt::Error(config) naming the topics where there is no such one.
std::string manual(const std::string& topic, int columns);

// Markdown as text to be read: without the addresses of links, and wrapped at so many columns.
std::string plain_text(std::string_view markdown, int columns);

}  // namespace gpt::config
