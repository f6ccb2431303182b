#include "gpt/core/map_faults.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/hash.h"
#include "scratch_folder.h"

namespace gpt {
namespace {

int sum(const MappedFile& file) {
  return std::accumulate(file.bytes().begin(), file.bytes().end(), 0,
                         [](int sum, std::byte byte) { return sum + std::to_integer<int>(byte); });
}

TEST(MapFaults, ATruncatedFileReadsAsZerosAndIsNamed) {
  const ScratchFolder folder;
  const std::string path = folder.file("tokens.bin", std::string(100'000, '\1'));
  {
    const MappedFile file(path, ExitCode::data);
    EXPECT_EQ(sum(file), 100'000);
    EXPECT_NO_THROW(map_faults::require_intact());
    EXPECT_EQ(map_faults::changed_file(), "");
    std::filesystem::resize_file(path, 5000);
    const int left = sum(file);
    EXPECT_GE(left, 5000);
    EXPECT_LT(left, 100'000);
    EXPECT_EQ(map_faults::changed_file(), path);
    try {
      map_faults::require_intact();
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_TRUE(std::string(error.what()).starts_with(path + " was truncated")) << error.what();
    }
  }
  EXPECT_NO_THROW(map_faults::require_intact()) << "what is no longer mapped cannot harm";
}

TEST(MapFaults, AnOverwrittenFileIsFoundWhenAsked) {
  const ScratchFolder folder;
  const std::string path = folder.file("tokens.bin", std::string(1000, '\1'));
  std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  const MappedFile file(path, ExitCode::data);
  EXPECT_EQ(map_faults::changed_file(), "");
  std::fstream(path, std::ios::in | std::ios::out).write("xyz", 3);
  EXPECT_EQ(map_faults::changed_file(), path);
}

// `touch`, a backup or a copy onto itself.
TEST(MapFaults, AFileWithANewTimeAndTheSameContentIsNotChanged) {
  const ScratchFolder folder;
  const std::string path = folder.file("tokens.bin", std::string(1000, '\1'));
  const auto set_age = [&](int hours) {
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  set_age(9);
  const MappedFile file(path, ExitCode::data);
  const auto part = file.bytes().subspan(100, 900);
  map_faults::remember(part, hash128({reinterpret_cast<const char*>(part.data()), part.size()}));
  set_age(5);
  EXPECT_EQ(map_faults::changed_file(), "");
  std::fstream(path, std::ios::in | std::ios::out).write("xyz", 3);  // before that part
  set_age(4);
  EXPECT_EQ(map_faults::changed_file(), "");
  std::fstream(path, std::ios::in | std::ios::out).seekp(500).write("xyz", 3);
  set_age(3);
  EXPECT_EQ(map_faults::changed_file(), path);
}

TEST(MapFaults, AFileThatIsReplacedUnderItsNameStaysAsItWas) {
  const ScratchFolder folder;
  const std::string path = folder.file("tokens.bin", std::string(1000, '\1'));
  const MappedFile file(path, ExitCode::data);
  std::filesystem::rename(folder.file("new.bin", "other"), path);
  EXPECT_EQ(sum(file), 1000);
  EXPECT_EQ(map_faults::changed_file(), "");
  std::filesystem::remove(path);
  EXPECT_EQ(map_faults::changed_file(), "");
}

TEST(MapFaultsDeathTest, AnotherBusErrorStillEndsTheProcess) {
  const ScratchFolder folder;
  const MappedFile file(folder.file("some.bin", "text"), ExitCode::data);  // the handler is there
  EXPECT_EXIT(raise(SIGBUS), testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace gpt
