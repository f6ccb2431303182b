// What a process takes of the memory: what the kernel cannot take back.
#include "gpt/core/process_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <vector>

#include "gpt/core/file.h"
#include "scratch_folder.h"

namespace gpt {
namespace {

constexpr int64_t kBytes = 96 << 20, kNoise = 16 << 20;

// Reads a byte of each page.
int64_t touch(const MappedFile& file) {
  int64_t sum = 0;
  for (size_t i = 0; i < file.bytes().size(); i += static_cast<size_t>(getpagesize()))
    sum += std::to_integer<int>(file.bytes()[i]);
  return sum;
}

TEST(ProcessMemory, PagesOfAMappedFileAreNotTheProcesss) {
  const ScratchFolder folder;
  const std::string path = folder.file("tokens.bin", "");
  std::filesystem::resize_file(path, kBytes);  // a hole: it takes no space on the disk
  const MappedFile file(path, ExitCode::data);
  const int64_t before = process_memory::bytes();
  EXPECT_EQ(touch(file), 0);
  EXPECT_LT(process_memory::bytes() - before, kNoise);
  EXPECT_LT(process_memory::peak() - before, kNoise);
}

TEST(ProcessMemory, ItsOwnAreAndThePeakIsTheLargestThatWasSampled) {
  const int64_t before = process_memory::bytes();
  {
    const std::vector<char> own(kBytes, 1);
    EXPECT_GT(process_memory::bytes() - before, kBytes - kNoise);
    process_memory::sample();
  }
  EXPECT_LT(process_memory::bytes() - before, kNoise);
  EXPECT_GT(process_memory::peak() - before, kBytes - kNoise);
}

}  // namespace
}  // namespace gpt
