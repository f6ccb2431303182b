// Files for parsers that open them themselves: in memory where there is such a file system, since each input is a new file.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

#include "expect.h"

namespace gpt::fuzz {

class Folder {
 public:
  Folder() {
    for (const std::filesystem::path& parent :
         {std::filesystem::path("/dev/shm"), std::filesystem::temp_directory_path()}) {
      path_ = (parent / "gpt-fuzz-XXXXXX").string();
      if (mkdtemp(path_.data()) != nullptr) return;
    }
    expect(false, "a folder for the files");
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

  std::string write(std::string_view name, std::string_view bytes) const {
    const std::string path = *this / name;
    std::error_code ignored;
    std::filesystem::remove(path, ignored);  // some file systems wait for the disk when a file is overwritten
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path;
  }

 private:
  std::string path_;
};

inline std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace gpt::fuzz
