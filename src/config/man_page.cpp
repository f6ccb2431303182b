// Manual pages, in troff's man macros (man(7)).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/config/arguments.h"
#include "gpt/core/text.h"
#include "gpt/core/version.h"
#include "row_text.h"

namespace gpt::config {
namespace {

// Text as troff prints it: a minus that can be copied, and no line that is taken for a request.
std::string escaped(const std::string& text) {
  std::string result = replaced(replaced(text, "\\", "\\e"), "-", "\\-");
  result = replaced(replaced(result, "\n.", "\n\\&."), "\n'", "\n\\&'");
  return result.starts_with('.') || result.starts_with('\'') ? "\\&" + result : result;
}

std::string heading(const std::string& title) {
  std::string capitals = title;
  std::transform(capitals.begin(), capitals.end(), capitals.begin(), [](unsigned char c) { return std::toupper(c); });
  return fmt::format(".SH \"{}\"\n", capitals);
}

std::string line(const std::string& text) { return escaped(text) + (text.ends_with('\n') ? "" : "\n"); }

// The paragraphs of a text, between which a line is empty.
std::vector<std::string> paragraphs_of(const std::string& text) {
  std::vector<std::string> paragraphs;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find("\n\n"), rest.size());
    if (end > 0) paragraphs.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(rest.find_first_not_of('\n', end), rest.size()));
  }
  return paragraphs;
}

// Its first line is the heading of those below it, which are indented.
bool is_headed(const std::string& paragraph) {
  const size_t end = paragraph.find('\n');
  return end != std::string::npos && !paragraph.starts_with(' ') && paragraph.substr(end).starts_with("\n  ");
}

// Indented lines: terms with what they mean beside them, or sentences. Lines that are indented further continue the one before.
std::string block(const std::string& text) {
  std::string result;
  std::istringstream lines(text);
  for (std::string next; std::getline(lines, next);) {
    const size_t indent = next.find_first_not_of(' ');
    if (indent == std::string::npos) continue;
    next.erase(0, indent);
    const size_t gap = next.find("  ");
    const bool is_continued = indent > 2 && !result.empty();
    if (gap != std::string::npos) {
      result += fmt::format(".TP\n.B {}\n", escaped(next.substr(0, gap)));
      next.erase(0, next.find_first_not_of(' ', gap));
    } else if (!is_continued) {
      result += ".PP\n";
    }
    result += line(next);
  }
  return result;
}

std::string plain_paragraphs(const std::string& text) {
  std::string result;
  for (const std::string& paragraph : paragraphs_of(text)) {
    if (is_headed(paragraph)) continue;
    result += paragraph.starts_with(' ') ? block(paragraph) : ".PP\n" + line(paragraph);
  }
  return result;
}

std::string headed_paragraphs(const std::string& text) {
  std::string result;
  for (const std::string& paragraph : paragraphs_of(text)) {
    if (!is_headed(paragraph)) continue;
    const size_t end = paragraph.find('\n');
    result += heading(paragraph.substr(0, end)) + block(paragraph.substr(end + 1));
  }
  return result;
}

// What NAME says, from which whatis(1) is made: a first sentence without its period.
std::string first_sentence(const std::string& description) {
  const size_t end = std::min(description.find(".\n"), description.find(". "));
  std::string sentence = description.substr(0, end);
  if (sentence.ends_with('.')) sentence.pop_back();
  return replaced(sentence, "\n", " ");
}

}  // namespace

std::string man_page(const Program& program) {
  const std::string name = replaced(program.name, " ", "-"), version = version_text();
  const Guide& guide = program.guide;
  std::string page = fmt::format(".TH \"{}\" 1 \"\" \"{}\" \"User Commands\"\n", escaped(name),
                                 escaped(version.substr(0, version.find(" ("))));
  page += heading("Name") + fmt::format("{} \\- {}\n", escaped(name), escaped(first_sentence(program.description)));
  page += heading("Synopsis") + fmt::format(".B {}\n{}", escaped(program.name), line(program.usage));
  page += heading("Description") + plain_paragraphs(program.description) + plain_paragraphs(guide.ending);
  page += heading("Options") +
          line(
              "A flag is written --flag VALUE or --flag=VALUE, with - or _ between its words. Each is shown with its "
              "default, its [range or choices] and its (other spellings).") +
          plain_paragraphs(program.notes);
  std::vector<Section> sections = program.sections;
  if (!guide.first.empty())
    sections.insert(sections.begin(), {"The flags that people need first", first_rows(program)});
  for (const Section& section : sections) {
    if (!section.title.empty()) page += fmt::format(".SS \"{}\"\n", escaped(section.title));
    for (const Option& row : section.rows)
      page += fmt::format(".TP\n.B {}\n{}", escaped(flag_of(row)), line(explanation_of(row)));
  }
  if (!guide.examples.empty()) page += heading("Examples") + ".nf\n" + line(guide.examples) + ".fi\n";
  return page + headed_paragraphs(guide.ending);
}

}  // namespace gpt::config
