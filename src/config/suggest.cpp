#include "gpt/config/suggest.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <map>
#include <system_error>
#include <tuple>

namespace gpt::config {
namespace {

std::string digits(std::string_view name) {
  std::string result;
  std::copy_if(name.begin(), name.end(), std::back_inserter(result), [](unsigned char c) { return std::isdigit(c); });
  return result;
}

// How far a candidate is from what was typed, both normalised; less is nearer. Among names that are equally many edits
// away, the digits tell beta1 from beta2, and people get the beginning of a word right more often than its end.
auto distance(std::string_view typed, std::string_view candidate) {
  const auto differs = std::mismatch(typed.begin(), typed.end(), candidate.begin(), candidate.end()).first;
  return std::make_tuple(edit_distance(typed, candidate), digits(typed) != digits(candidate), typed.end() - differs);
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string normalised(std::string_view name) {
  std::string result(name);
  for (char& c : result) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::optional<std::string> did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  constexpr size_t kLongestName = 64;  // nobody meant a key by more than that
  if (name.size() > kLongestName) return std::nullopt;
  const std::string typed = normalised(name);
  const auto nearest = std::min_element(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) {
    return distance(typed, normalised(a)) < distance(typed, normalised(b));
  });
  if (nearest == candidates.end()) return std::nullopt;
  const size_t most_edits = std::max<size_t>(1, typed.size() / 3);
  return edit_distance(typed, normalised(*nearest)) <= most_edits ? std::optional(*nearest) : std::nullopt;
}

std::string did_you_mean_path(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr size_t kMostEntries = 10'000;
  fs::path asked(path);
  if (!asked.has_filename()) asked = asked.parent_path();
  const fs::path folder = asked.parent_path();
  std::map<std::string, std::string> entries;  // by their names, and by those without the ending
  std::error_code error;
  for (fs::directory_iterator entry(folder.empty() ? "." : folder, error), end;
       !error && entry != end && entries.size() < kMostEntries; entry.increment(error)) {
    const fs::path name = entry->path().filename();
    if (name.string().starts_with('.')) continue;
    entries[name.string()] = name.string();
    std::string& shortest = entries.try_emplace(name.stem().string(), name.string()).first->second;
    shortest = std::min(shortest, name.string());  // whatever the order of the folder
  }
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries) names.push_back(name);
  const auto near = did_you_mean(asked.filename().string(), names);
  return near ? "; did you mean " + (folder / entries[*near]).string() + "?" : "";
}

}  // namespace gpt::config
