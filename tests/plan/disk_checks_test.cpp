#include "gpt/plan/disk_checks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "gpt/core/error.h"

namespace gpt::plan {
namespace {

using Status = Check::Status;
namespace fs = std::filesystem;

class InAFolder : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  const fs::path folder_ = fs::temp_directory_path() / ("gpt_disk_checks_" + std::to_string(getpid()));
};
using NearestFolder = InAFolder;
using MeasureWriteSpeed = InAFolder;
using MeasureReadSpeed = InAFolder;
using MappedFile = InAFolder;

TEST_F(NearestFolder, IsTheOneThatIsThere) {
  EXPECT_EQ(nearest_folder(folder_.string()), folder_.string());
  EXPECT_EQ(nearest_folder((folder_ / "a/b/c").string()), folder_.string());
  EXPECT_EQ(nearest_folder("/no such folder/at all"), "/");
}

TEST_F(MeasureWriteSpeed, LeavesNothingBehind) {
  EXPECT_GT(measure_write_speed(folder_.string()), 0);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(MeasureWriteSpeed, AFolderThatIsNotThereIsADiskError) {
  try {
    measure_write_speed((folder_ / "missing").string());
    FAIL() << "no error";
  } catch (const Error& e) { EXPECT_EQ(e.code(), ExitCode::disk); }
}

TEST_F(MeasureReadSpeed, IsOfAFileOfMegabytes) {
  const std::string small = (folder_ / "small").string(), large = (folder_ / "large").string();
  std::ofstream(small) << "tokens";
  std::ofstream(large) << std::string(size_t{3} << 20, 'x');
  EXPECT_FALSE(measure_read_speed(small));
  const int direct = open(large.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);  // not every file system can
  if (direct >= 0) close(direct);
  const std::optional<double> speed = measure_read_speed(large);
  EXPECT_EQ(speed.has_value(), direct >= 0);
  EXPECT_GT(speed.value_or(1), 0);
  EXPECT_THROW(measure_read_speed((folder_ / "missing").string()), Error);
}

TEST_F(MappedFile, IsThatOfAnyAddressInside) {
  const fs::path path = folder_ / "two words.bin";
  std::ofstream(path) << std::string(100'000, 'a');
  const int fd = open(path.c_str(), O_RDONLY);
  void* const mapped = mmap(nullptr, 100'000, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_EQ(mapped_file(mapped), path);
  EXPECT_EQ(mapped_file(static_cast<const char*>(mapped) + 99'999), path);
  munmap(mapped, 100'000);
  EXPECT_NE(mapped_file(mapped), path);
  const std::string on_the_heap(1'000'000, 'a');
  EXPECT_EQ(mapped_file(on_the_heap.data()), "");
}

TEST(CheckDataSpeed, HalfOfTheDiskIsEnough) {
  const Check fast = check_data_speed("tokens.bin", 200e6, 90e6);
  EXPECT_EQ(fast.status, Status::pass);
  EXPECT_EQ(fast.detail, "tokens.bin is read at 200 MB/s past the page cache; training takes 90.0 MB/s");
  EXPECT_EQ(check_data_speed("tokens.bin", 200e6, 110e6).status, Status::warn);
}

TEST(CheckDiskSpeed, SlowerThanFiftyMegabytesIsAWarning) {
  const Check slow = check_disk_speed("/mnt", 20e6, 120e6);
  EXPECT_EQ(slow.status, Status::warn);
  EXPECT_EQ(slow.detail, "/mnt writes 20.0 MB/s: a checkpoint of 120 MB takes 6 s");
  EXPECT_EQ(check_disk_speed("/mnt", 500e6, 120e6).status, Status::pass);
}

TEST(CheckDiskSpace, OneCheckpointMoreThanIsKeptHasToFit) {
  EXPECT_EQ(check_disk_space("/mnt", 3e9, 1e9, 2, 0).status, Status::pass);
  EXPECT_EQ(check_disk_space("/mnt", 4.9e9, 1e9, 2, 2).status, Status::fail);
  EXPECT_EQ(check_disk_space("/mnt", 5e9, 1e9, 2, 2).status, Status::pass);
}

TEST(CheckDiskSpace, OnlyWhatTheRunKeepsCanBeLowered) {
  EXPECT_EQ(check_disk_space("/mnt", 1e9, 1e9, 2, 0).fix, "free some space, or choose another output_dir");
  EXPECT_EQ(check_disk_space("/mnt", 1e9, 1e9, 2, 3).fix,
            "free some space, lower training.keep_last, or choose another output_dir");
}

}  // namespace
}  // namespace gpt::plan
