#include "source_list.h"

#include <fmt/format.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "gpt/core/error.h"

namespace gpt {
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

// How a file is read follows from its name alone.
Source source_named(const std::string& path, const std::string& input) {
  Source source{.path = path, .name = path};
  std::string_view name = input;
  source.packing = take_suffix(name, ".gz") ? Packing::gzip : take_suffix(name, ".zst") ? Packing::zstd : Packing::none;
  if (name.ends_with(".jsonl") || name.ends_with(".ndjson")) source.kind = TextKind::json_lines;
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

class Search {
 public:
  explicit Search(const std::string& output_dir) {
    std::error_code none;
    output_ = fs::weakly_canonical(output_dir, none);
  }

  void add(const std::string& input) {
    if (is_standard_input(input)) {
      list_.sources.push_back(standard_input(input));
    } else if (std::error_code none; fs::exists(input, none)) {
      add_path(input, /*found=*/false);
    } else if (input.find_first_of("*?[") != std::string::npos) {
      add_pattern(input);
    } else {
      cannot_read(input.empty() ? "an input with an empty name" : input, std::generic_category().message(ENOENT));
    }
  }

  SourceList take() {
    const auto by_path = [](const PassedOver& a, const PassedOver& b) { return a.path < b.path; };
    std::sort(list_.passed_over.begin(), list_.passed_over.end(), by_path);
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
    if (same_as_output(folder)) {
      throw Error(ExitCode::config,
                  fmt::format("{} is both input and output: what is written there would be read as text "
                              "the next time; choose another --output",
                              folder));
    }
    std::vector<std::string> files;
    walk(folder, found, files);
    std::sort(files.begin(), files.end());
    const size_t before = list_.sources.size();
    for (const std::string& file : files) add_path(file, /*found=*/true);
    if (list_.sources.size() == before) refuse(folder, found, "there is no text file in this folder");
  }

  void walk(const fs::path& folder, bool found, std::vector<std::string>& files) {
    std::error_code error;
    fs::directory_iterator entry(folder, error);
    for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
      std::error_code dangling;
      const fs::file_status status = entry->status(dangling);
      if (entry->path().filename().native().starts_with('.')) continue;
      if (fs::is_directory(status) && !entry->is_symlink(dangling)) {
        if (!same_as_output(entry->path())) walk(entry->path(), /*found=*/true, files);
      } else if (fs::is_regular_file(status)) {
        files.push_back(entry->path().string());
      } else {
        refuse(entry->path(), /*found=*/true, why_neither(status));
      }
    }
    if (error) refuse(folder, found, error.message());
  }

  void add_pattern(const std::string& pattern) {
    glob_t matches{};
    const int status = glob(pattern.c_str(), GLOB_NOSORT, nullptr, &matches);
    std::vector<std::string> paths(matches.gl_pathv, matches.gl_pathv + (status == 0 ? matches.gl_pathc : 0));
    globfree(&matches);
    if (paths.empty()) cannot_read(pattern, "no file matches");
    std::sort(paths.begin(), paths.end());
    for (const std::string& path : paths) add_path(path, /*found=*/true);
  }

  static const char* why_neither(const fs::file_status& status) {
    if (fs::is_directory(status)) return "it is a link to a folder";
    return fs::exists(status) ? "it is neither a file nor a folder" : "it is a broken link, or not accessible";
  }

  bool same_as_output(const fs::path& folder) const {
    std::error_code none;
    return !output_.empty() && fs::weakly_canonical(folder, none) == output_;
  }

  static bool holds_web_pages(std::string_view name) {
    take_suffix(name, ".gz");
    return name.ends_with(".warc") || name.ends_with(".wat");
  }

  fs::path output_;
  SourceList list_;
};

}  // namespace

SourceList find_sources(const std::vector<std::string>& inputs, const std::string& output_dir) {
  Search search(output_dir);
  for (const std::string& input : inputs) search.add(input);
  return search.take();
}

}  // namespace gpt
