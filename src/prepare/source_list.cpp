#include "source_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "gpt/config/output_folder.h"
#include "gpt/config/suggest.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/log.h"
#include "own_files.h"

namespace gpt::prepare {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void cannot_read(const std::string& input, const std::string& why) {
  throw Error(ExitCode::data, fmt::format("cannot read {}: {}", input, why));
}

bool take_suffix(std::string_view& name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return false;
  name.remove_suffix(suffix.size());
  return true;
}

Source source_named(const std::string& path, const std::string& input) {
  Source source{.path = path, .name = path};
  std::string_view name = input;
  source.packing = take_suffix(name, ".gz") ? Packing::gzip : take_suffix(name, ".zst") ? Packing::zstd : Packing::none;
  for (const char* suffix : {".jsonl", ".ndjson", ".json"}) {
    if (name.ends_with(suffix)) source.kind = TextKind::json_lines;
  }
  if (name.ends_with(".wet")) source.kind = TextKind::wet;
  return source;
}

bool is_standard_input(const std::string& input) { return input == "-" || input.starts_with("-."); }

Source standard_input(const std::string& input) {
  Source source = source_named("-", input);
  source.name = "standard input";
  source.stream = true;
  return source;
}

// "models (runs), tokens (token ids), 2 hidden files or folders"
std::string describe(const std::vector<LeftOut>& left_out) {
  constexpr size_t kMostNamed = 3;
  std::vector<std::string> named;
  size_t others = 0, hidden = 0;
  for (const LeftOut& entry : left_out) {
    if (entry.what.empty()) {
      ++hidden;
    } else if (named.size() == kMostNamed) {
      ++others;
    } else {
      named.push_back(fmt::format("{} ({})", entry.path, entry.what));
    }
  }
  if (others > 0) named.push_back(fmt::format("{} more", others));
  if (hidden > 0)
    named.push_back(fmt::format("{} hidden {}", hidden, hidden == 1 ? "file or folder" : "files or folders"));
  return fmt::format("{}", fmt::join(named, ", "));
}

// A folder that is no input although it may lie in one.
struct OwnFolder {
  fs::path path;
  const char* what;
  const char* setting;  // the setting that names it, so that it cannot be an input either; null where it can
};

bool is_pattern(std::string_view part) { return part.find_first_of("*?[") != std::string_view::npos; }

class Search {
 public:
  Search(const std::string& output_dir, const std::string& cache_dir) {
    const auto add = [this](const std::string& path, const char* what, const char* setting) {
      std::error_code none;
      if (!path.empty()) own_folders_.push_back({fs::weakly_canonical(path, none), what, setting});
    };
    add(output_dir, "the output", "--output");
    add(cache_dir, "prepared texts", "data.cache_dir");
    add(config::kRunsFolder, "runs", nullptr);
  }

  void add(const std::string& input) {
    if (is_standard_input(input)) {
      list_.sources.push_back(standard_input(input));
    } else if (std::error_code none; fs::exists(input, none)) {
      add_path(input, /*found=*/false);
    } else if (is_pattern(input)) {
      add_pattern(input);
    } else {
      cannot_read(input.empty() ? "an input with an empty name" : input,
                  std::generic_category().message(ENOENT) + config::did_you_mean_path(input));
    }
  }

  SourceList take() {
    const auto by_path = [](const auto& a, const auto& b) { return a.path < b.path; };
    std::sort(list_.passed_over.begin(), list_.passed_over.end(), by_path);
    std::sort(list_.left_out.begin(), list_.left_out.end(), by_path);
    const auto same_path = [](const LeftOut& a, const LeftOut& b) { return a.path == b.path; };
    list_.left_out.erase(std::unique(list_.left_out.begin(), list_.left_out.end(), same_path), list_.left_out.end());
    for (uint32_t i = 0; i < list_.sources.size(); ++i) list_.sources[i].number = i;
    return std::move(list_);
  }

 private:
  // What was found is passed over, what was named is an error.
  void refuse(const std::string& path, bool found, const std::string& why) {
    if (!found) cannot_read(path, why);
    list_.passed_over.push_back({path, fmt::format("{}: {}", path, why)});
  }

  void add_path(const std::string& path, bool found) {
    struct stat info{};
    if (stat(path.c_str(), &info) != 0) return refuse(path, found, std::generic_category().message(errno));
    if (S_ISDIR(info.st_mode)) return add_folder(path, found);
    if (!S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode))
      return refuse(path, found, "it is neither a file nor a folder");
    if (holds_web_pages(path)) {
      return refuse(path, found,
                    "it holds web pages or their metadata; the text is in Common Crawl's .warc.wet.gz files");
    }
    Source source = source_named(path, path);
    source.bytes = info.st_size;
    source.stream = !S_ISREG(info.st_mode);
    source.found = found;
    list_.sources.push_back(std::move(source));
  }

  void add_folder(const std::string& folder, bool found) {
    if (const OwnFolder* own = own_folder(folder); own && own->setting) {
      throw Error(ExitCode::config,
                  fmt::format("{} is both input and output: what is written there would be read as text "
                              "the next time; choose another {}",
                              folder, own->setting));
    }
    std::vector<std::string> files;
    walk(folder, found, files);
    std::sort(files.begin(), files.end());
    const size_t before = list_.sources.size();
    for (const std::string& file : files) add_path(file, /*found=*/true);
    if (list_.sources.size() == before) refuse(folder, found, "there is no text file in this folder" + but_left_out());
  }

  void walk(const fs::path& folder, bool found, std::vector<std::string>& files) {
    std::error_code error;
    const std::vector<std::string> names = names_in(folder, error);
    if (error) return refuse(folder, found, error.message());
    const OwnFiles own(names);
    for (const std::string& name : names) {
      std::error_code dangling;
      const fs::path path = folder / name;
      const fs::file_status status = fs::status(path, dangling);
      if (is_left_out(path, name, own)) continue;
      if (fs::is_directory(status) && !fs::is_symlink(path, dangling)) {
        walk(path, /*found=*/true, files);
      } else if (fs::is_regular_file(status)) {
        files.push_back(path.string());
      } else {
        refuse(path, /*found=*/true, why_neither(status));
      }
    }
  }

  // `own`: what the program wrote into its folder.
  bool is_left_out(const fs::path& path, const std::string& name, const OwnFiles& own) {
    std::string what;
    if (const char* file = own.file(name)) what = file;
    std::error_code none;
    if (what.empty() && !name.starts_with('.') && fs::is_directory(path, none)) what = own_folder_kind(path);
    if (what.empty() && !name.starts_with('.')) return false;
    list_.left_out.push_back({path, what});
    return true;
  }

  std::string own_folder_kind(const fs::path& path) const {
    if (const OwnFolder* own = own_folder(path)) return own->what;
    std::error_code none;
    const char* what = OwnFiles(names_in(path, none)).folder();
    return what ? what : "";
  }

  void add_pattern(const std::string& pattern) {
    std::vector<std::string> parts;
    for (const fs::path& part : fs::path(pattern).relative_path()) {
      const bool again = part == "**" && !parts.empty() && parts.back() == "**";
      if (!part.empty() && !again) parts.push_back(part);
    }
    if (parts.back() == "**") parts.push_back("*");
    std::set<std::string> paths;
    match(fs::path(pattern).root_path(), parts, paths);
    // Behind ** the files of a folder match for themselves.
    std::error_code none;
    if (std::find(parts.begin(), parts.end(), "**") != parts.end())
      std::erase_if(paths, [&](const std::string& path) { return fs::is_directory(path, none); });
    if (paths.empty()) cannot_read(pattern, "no file matches" + but_left_out());
    for (const std::string& path : paths) add_path(path, /*found=*/true);
  }

  // The paths below `folder` (empty: the current one) whose parts match these patterns.
  void match(const fs::path& folder, std::span<const std::string> parts, std::set<std::string>& paths) {
    std::error_code none;
    const std::string& part = parts.front();
    const std::span<const std::string> rest = parts.subspan(1);
    const auto go_on = [&](const fs::path& path) {
      if (!rest.empty()) return match(path, rest, paths);
      if (fs::symlink_status(path, none).type() != fs::file_type::not_found) paths.insert(path);
    };
    if (!is_pattern(part)) return go_on(folder / part);
    const bool any_depth = part == "**";
    if (any_depth) match(folder, rest, paths);
    std::error_code error;
    const std::vector<std::string> names = names_in(folder.empty() ? "." : folder.string(), error);
    if (error && error != std::errc::not_a_directory) return refuse(folder, /*found=*/true, error.message());
    const OwnFiles own(names);
    for (const std::string& name : names) {
      const fs::path path = folder / name;
      if (fnmatch(part.c_str(), name.c_str(), 0) != 0) continue;
      if ((any_depth || !rest.empty()) && !fs::is_directory(path, none)) continue;
      if (!part.starts_with('.') && is_left_out(path, name, own)) continue;
      if (!any_depth) {
        go_on(path);
      } else if (fs::is_symlink(path, none)) {
        refuse(path, /*found=*/true, why_neither(fs::status(path, none)));
      } else {
        match(path, parts, paths);
      }
    }
  }

  std::string but_left_out() const {
    return list_.left_out.empty() ? "" : fmt::format(" apart from what is left out: {}", describe(list_.left_out));
  }

  static const char* why_neither(const fs::file_status& status) {
    if (fs::is_directory(status)) return "it is a link to a folder";
    return fs::exists(status) ? "it is neither a file nor a folder" : "it is a broken link, or not accessible";
  }

  const OwnFolder* own_folder(const fs::path& folder) const {
    std::error_code none;
    const fs::path path = fs::weakly_canonical(folder, none);
    const auto own = std::find_if(own_folders_.begin(), own_folders_.end(),
                                  [&](const OwnFolder& candidate) { return candidate.path == path; });
    return own == own_folders_.end() ? nullptr : &*own;
  }

  static bool holds_web_pages(std::string_view name) {
    take_suffix(name, ".gz");
    return name.ends_with(".warc") || name.ends_with(".wat");
  }

  std::vector<OwnFolder> own_folders_;
  SourceList list_;
};

}  // namespace

SourceList find_sources(const std::vector<std::string>& inputs, const std::string& output_dir,
                        const std::string& cache_dir) {
  Search search(output_dir, cache_dir);
  for (const std::string& input : inputs) search.add(input);
  return search.take();
}

void announce(const std::vector<LeftOut>& left_out) {
  if (!left_out.empty()) log::info("Left out: " + describe(left_out));
}

}  // namespace gpt::prepare
