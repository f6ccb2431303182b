#include "gpt/checkpoint/base.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "gpt/config/run_files.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/hash.h"
#include "gpt/core/printable.h"

namespace gpt::checkpoint {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_of_base(const std::string& path) {
  return is_foreign_base(path) ? files_of_foreign_base(path) : std::vector{path};
}

// "SIZE TIME" of each file; the times in nanoseconds of the file system's clock.
std::string stamp_of(const std::vector<std::string>& files) {
  std::string stamp;
  for (const std::string& file : files) {
    std::error_code error;
    const auto size = fs::file_size(file, error);
    const auto time = fs::last_write_time(file, error);
    if (error) throw Error(ExitCode::checkpoint, fmt::format("cannot read {}: {}", file, error.message()));
    stamp += fmt::format("{}{} {}", stamp.empty() ? "" : ", ", size, time.time_since_epoch().count());
  }
  return stamp;
}

std::string hash_of(const std::vector<std::string>& files) {
  Hash128 hash;
  for (const std::string& file : files) {
    const MappedFile map(file, ExitCode::checkpoint);
    hash.update({reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size()});
  }
  return hash.hex();
}

// The sizes alone, of which nothing need be read.
std::string sizes_in(std::string_view stamp) {
  std::string sizes;
  while (!stamp.empty()) {
    const std::string_view of_file = stamp.substr(0, stamp.find(", "));
    sizes += of_file.substr(0, of_file.find(' '));
    sizes += ' ';
    stamp.remove_prefix(std::min(stamp.size(), of_file.size() + 2));
  }
  return sizes;
}

// The base, if that is what lies at `path`.
std::optional<BaseModel> base_at(const std::string& path, const BaseModel& base) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  try {
    const std::vector<std::string> files = files_of_base(path);
    BaseModel found{path, base.hash, stamp_of(files)};
    if (found.stamp == base.stamp && path == base.path) return found;
    if (sizes_in(found.stamp) != sizes_in(base.stamp) || hash_of(files) != base.hash) return std::nullopt;
    return found;
  } catch (const Error&) { return std::nullopt; }
}

// Where it may have been moved to together with the run, or was kept beside it.
std::vector<std::string> places_beside(const BaseModel& base, const std::string& checkpoint) {
  const fs::path folder = fs::absolute(checkpoint).lexically_normal().parent_path(), path = base.path;
  std::vector<std::string> places{(folder / kBaseFile).string()};
  for (const fs::path& around : {folder, folder.parent_path()})
    for (const fs::path& name : {path.filename(), path.parent_path().filename() / path.filename()})
      places.push_back((around / name).string());
  std::error_code ignored;
  std::erase_if(places, [&](const std::string& place) { return fs::equivalent(place, checkpoint, ignored); });
  return places;
}

}  // namespace

void to_json(nlohmann::ordered_json& json, const BaseModel& base) {
  json = {{"path", base.path}, {"hash", base.hash}, {"stamp", base.stamp}};
}

void from_json(const nlohmann::ordered_json& json, BaseModel& base) {
  base = {json.at("path").get<std::string>(), json.at("hash").get<std::string>(), json.at("stamp").get<std::string>()};
}

BaseModel describe_base(const std::string& path) {
  const std::string absolute = fs::absolute(path).lexically_normal().string();
  const std::vector<std::string> files = files_of_base(absolute);
  return {absolute, hash_of(files), stamp_of(files)};
}

BaseModel find_base(const BaseModel& base, const std::string& checkpoint) {
  if (auto found = base_at(base.path, base)) return std::move(*found);
  for (const std::string& place : places_beside(base, checkpoint))
    if (auto found = base_at(place, base)) return std::move(*found);
  std::error_code ignored;
  const std::string name = printable_line(fs::path(base.path).filename().string());
  throw Error(ExitCode::checkpoint,
              fmt::format("it has adapters alone, of the model {}, which {}, and beside {} there is none with its hash "
                          "({}) either: put the model that the run began with back there, or as {} into the folder of "
                          "the checkpoint",
                          printable_line(base.path),
                          fs::exists(base.path, ignored) ? "has changed since the run began" : "is not there any more",
                          printable_line(checkpoint), printable_line(base.hash), name));
}

}  // namespace gpt::checkpoint
