#include "gpt/core/installed_data.h"

#include <system_error>

namespace gpt {

namespace fs = std::filesystem;

fs::path program_folder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

fs::path checkout_folder() { return (program_folder() / ".." / "..").lexically_normal(); }
fs::path installed_folder() { return (program_folder() / ".." / "share" / "gpt-train").lexically_normal(); }

std::string installed_file(const std::string& name) {
  std::error_code error;
  const fs::path path = installed_folder() / name;
  return fs::is_regular_file(path, error) ? path.lexically_normal().string() : "";
}

std::string installed_data(const std::string& name) {
  std::error_code error;
  for (const fs::path& folder : {fs::path(), checkout_folder()}) {
    const fs::path path = folder / "data" / name;
    if (fs::is_regular_file(path, error)) return path.lexically_normal().string();
  }
  return installed_file("data/" + name);
}

}  // namespace gpt
