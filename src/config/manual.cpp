#include "gpt/config/manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/installed_data.h"

namespace gpt::config {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTop = "gpt-train";

void add_page(std::map<std::string, std::string>& pages, const std::string& topic, const fs::path& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) pages.emplace(topic, path.lexically_normal().string());
}

// "[text](address)" -> "text"
std::string without_addresses(std::string_view line) {
  std::string result;
  while (!line.empty()) {
    const size_t open = line.find('['), middle = line.find("](", open), close = line.find(')', middle);
    if (open == std::string_view::npos || middle == std::string_view::npos || close == std::string_view::npos) break;
    result += line.substr(0, open);
    result += line.substr(open + 1, middle - open - 1);
    line.remove_prefix(close + 1);
  }
  return result + std::string(line);
}

// Where the text of a line begins behind "* ", "1. " or the spaces that continue such a line.
size_t text_column(std::string_view line) {
  const size_t indent = std::min(line.find_first_not_of(' '), line.size());
  const std::string_view text = line.substr(indent);
  if (text.starts_with("* ") || text.starts_with("- ")) return indent + 2;
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  return digits > 0 && text.substr(digits).starts_with(". ") ? indent + digits + 2 : indent;
}

bool begins_item(std::string_view line) {
  return text_column(line) > std::min(line.find_first_not_of(' '), line.size());
}

bool stands_alone(std::string_view line) { return line.empty() || line.starts_with('#') || line.starts_with('|'); }

}  // namespace

std::map<std::string, std::string> manual_pages() {
  std::map<std::string, std::string> pages;
  std::error_code ignored;
  const fs::path checkout = program_folder() / ".." / "..",
                 installed = program_folder() / ".." / "share/gpt-train/manual";
  for (const auto& file : fs::directory_iterator(installed, ignored)) add_page(pages, file.path().stem(), file.path());
  if (pages.empty() && fs::is_regular_file(checkout / "CMakeLists.txt", ignored)) {
    add_page(pages, kTop, checkout / "README.md");
    for (const fs::path folder : {"configs", "configs/recipes"})
      add_page(pages, folder.filename(), checkout / folder / "README.md");
    for (const auto& folder : fs::directory_iterator(checkout / "src", ignored))
      add_page(pages, folder.path().filename(), folder.path() / "README.md");
  }
  return pages;
}

std::string manual(const std::string& topic, int columns) {
  const std::map<std::string, std::string> pages = manual_pages();
  if (const auto page = pages.find(topic); page != pages.end())
    return plain_text(read_file(page->second, ExitCode::config, SizeLimit{"a page", 1 << 20}), columns);
  if (pages.empty())
    throw Error(ExitCode::config,
                "--manual: no pages are installed beside this program (PREFIX/share/gpt-train/manual)");
  std::vector<std::string> topics;
  for (const auto& [name, path] : pages) topics.push_back(name);
  throw Error(ExitCode::config, fmt::format("--manual must be one of {}, got '{}'", fmt::join(topics, ", "), topic));
}

std::string plain_text(std::string_view markdown, int columns) {
  std::string result, paragraph;
  const auto flush = [&] {
    if (!paragraph.empty()) result += wrap_text(paragraph + "\n", columns, static_cast<int>(text_column(paragraph)));
    paragraph.clear();
  };
  std::istringstream lines{std::string(markdown)};
  bool is_code = false;
  for (std::string line; std::getline(lines, line);) {
    const bool is_fence = line.starts_with("```");
    if (is_code || is_fence) {
      flush();
      is_code = is_fence ? !is_code : is_code;
      if (!is_fence) result += "    " + line + "\n";
      continue;
    }
    line = without_addresses(line);
    if (stands_alone(line) || begins_item(line)) flush();
    if (stands_alone(line)) {
      result += line + "\n";
    } else {
      paragraph += paragraph.empty() ? line : " " + line.substr(std::min(line.find_first_not_of(' '), line.size()));
    }
  }
  flush();
  return result;
}

}  // namespace gpt::config
