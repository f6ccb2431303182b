#include "gpt/core/home.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

#include "gpt/core/error.h"

namespace gpt {
namespace {

// The home folder in an entry of the system's list of users, which may lack it.
std::string folder_of(const passwd* user) { return user && user->pw_dir ? user->pw_dir : ""; }

}  // namespace

std::string home_folder() {
  const char* home = std::getenv("HOME");
  return home ? home : folder_of(getpwuid(getuid()));
}

std::string cache_folder() {
  if (const char* caches = std::getenv("XDG_CACHE_HOME"); caches && *caches) return caches + std::string("/gpt-train");
  const std::string home = home_folder();
  return home.empty() ? "" : home + "/.cache/gpt-train";
}

std::string expand_home(const std::string& path) {
  if (!path.starts_with('~')) return path;
  const size_t slash = path.find('/');
  const std::string name = path.substr(1, slash == std::string::npos ? slash : slash - 1);
  const std::string home = name.empty() ? home_folder() : folder_of(getpwnam(name.c_str()));
  if (!home.empty()) return slash == std::string::npos ? home : home + path.substr(slash);
  throw Error(ExitCode::config,
              name.empty() ? fmt::format("'{}' begins with the home folder, but there is none: set HOME", path)
                           : fmt::format("'{}' begins with the home folder of {}, but there is no such user; write "
                                         "'./{}' for a file of that name",
                                         path, name, path));
}

}  // namespace gpt
