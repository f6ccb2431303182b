// The container against damage of every kind: an accepted file is exactly the one that was written.
#include "gpt/container/container.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "container/forged_container.h"
#include "container/records.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/lock.h"
#include "support/expect_error.h"

namespace gpt::container {
namespace {

namespace fs = std::filesystem;
using test::Records;
using test::write_records;

std::string random_bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

void write_plain(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// The error's text; empty where the file is accepted.
std::string refusal(const std::string& path) {
  try {
    ContainerReader(path).verify();
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    return error.what();
  }
}

testing::AssertionResult says(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << text << "' does not say '" << part << "'";
}

class ContainerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "container_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/ckpt.pt";
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string folder_, path_;
};

const Records kSmall = {{"data.pkl", "pickle"},
                        {"data/weight", random_bytes(700, 1)},
                        {"data/empty", ""},
                        {"data/b", "bias"}};

TEST_F(ContainerTest, ReturnsWhatWasWritten) {
  Records records = {{"version", "3\n"},
                     {"a name / with 'spaces' & {braces}", "x"},
                     {std::string(1024, 'n'), "long name"}};
  for (const size_t around : {64, 4096, 65536}) {
    for (const size_t size : {around - 1, around, around + 1}) {
      records.emplace_back("data/" + std::to_string(size), random_bytes(size, static_cast<uint32_t>(size)));
    }
  }
  for (size_t size = 0; size < 70; ++size) {
    records.emplace_back(std::string(size + 1, 'x'), random_bytes(size, static_cast<uint32_t>(size)));
  }
  write_records(path_, records);

  const ContainerReader reader(path_);
  ASSERT_EQ(reader.names().size(), records.size() + 1);
  EXPECT_EQ(reader.names().back(), "manifest.json");
  for (size_t i = 0; i < records.size(); ++i) {
    const auto& [name, bytes] = records[i];
    EXPECT_EQ(reader.names()[i], name);
    EXPECT_TRUE(reader.has(name));
    EXPECT_EQ(reader.text(name), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(reader.record(name).data()) % 64, 0u) << name;
  }
  EXPECT_FALSE(reader.has("data/64 "));
  EXPECT_THROW(reader.record("missing"), Error);
}

TEST_F(ContainerTest, HoldsNoRecordButItsManifest) {
  write_records(path_, {});
  EXPECT_EQ(ContainerReader(path_).names(), std::vector<std::string>{"manifest.json"});
}

TEST_F(ContainerTest, SameContentGivesTheSameFile) {
  write_records(path_, kSmall);
  write_records(path_ + "2", kSmall);
  EXPECT_EQ(read_file(path_, ExitCode::checkpoint), read_file(path_ + "2", ExitCode::checkpoint));
}

TEST_F(ContainerTest, RefusesNamesThatItCouldNotReadBack) {
  EXPECT_THROW(write_records(path_, {{"twice", "x"}, {"twice", "y"}}), std::invalid_argument);
  EXPECT_THROW(write_records(path_, {{"manifest.json", "x"}}), std::invalid_argument);
  for (const char* name : {"", "quote\"", "back\\slash", "line\n", "caf\xc3\xa9"}) {
    EXPECT_THROW(write_records(path_, {{name, "x"}}), std::invalid_argument) << name;
  }
  EXPECT_THROW(write_records(path_, {{std::string(1025, 'n'), "x"}}), std::invalid_argument);
}

TEST_F(ContainerTest, RefusesToEndBeforeAllIsWritten) {
  ContainerWriter writer(path_, {{"a", 1}, {"b", 0}});
  ASSERT_EQ(writer.pieces().size(), 2u);
  const std::byte byte{'x'};
  EXPECT_THROW(writer.write(0, {}), std::invalid_argument);
  writer.write(0, {&byte, 1});
  EXPECT_THROW(writer.commit(), std::logic_error);
  writer.write(1, {});
  writer.commit();
  EXPECT_EQ(refusal(path_), "");
}

std::string forged(const Records& records, int version) {
  ForgedContainer file(version);
  for (const auto& [name, bytes] : records) file.add(name, bytes);
  return file.finish();
}

TEST_F(ContainerTest, EveryFlippedBitIsRefused) {
  for (const int version : {1, 2}) {
    const std::string good = forged(kSmall, version);
    write_plain(path_, good);
    ASSERT_EQ(refusal(path_), "");
    const int fd = open(path_.c_str(), O_WRONLY);
    for (size_t i = 0; i < good.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        const char flipped = static_cast<char>(good[i] ^ (1 << bit));
        ASSERT_EQ(pwrite(fd, &flipped, 1, static_cast<off_t>(i)), 1);
        ASSERT_NE(refusal(path_), "") << "format " << version << ", bit " << bit << " of byte " << i;
      }
      ASSERT_EQ(pwrite(fd, &good[i], 1, static_cast<off_t>(i)), 1);
    }
    close(fd);
    EXPECT_EQ(refusal(path_), "");
  }
}

// The borders of pieces are the file's, so that they follow from the plan alone.
const Records kLarge = {{"data.pkl", "pickle"},
                        {"data/large", random_bytes((33 << 20) + 5, 3)},
                        {"data/b", "bias"},
                        {"data/to_a_border", random_bytes((10 << 20), 4)}};

TEST_F(ContainerTest, LargeRecordsAreWrittenInPiecesInAnyOrderByAnyThread) {
  {
    std::vector<RecordPlan> plan;
    for (const auto& [name, bytes] : kLarge) plan.push_back({name, bytes.size()});
    ContainerWriter writer(path_, plan);
    std::vector<std::thread> threads;
    for (size_t i = writer.pieces().size(); i-- > 0;) {
      threads.emplace_back([&, i] {
        const auto& [record, begin, end] = writer.pieces()[i];
        EXPECT_LE(end - begin, 16u << 20);
        writer.write(i, std::as_bytes(std::span(kLarge[record].second).subspan(begin, end - begin)));
      });
    }
    EXPECT_EQ(threads.size(), 1u + 3 + 1 + 1);
    for (std::thread& thread : threads) thread.join();
    writer.commit();
  }
  EXPECT_TRUE(read_file(path_, ExitCode::checkpoint) == forged(kLarge, 2));
  EXPECT_EQ(refusal(path_), "");
}

TEST_F(ContainerTest, AFlippedBitInAnyPieceIsFound) {
  const std::string good = forged(kLarge, 2);
  write_plain(path_, good);
  const int fd = open(path_.c_str(), O_WRONLY);
  for (size_t i = 1000; i < good.size(); i += 2'499'991) {
    const char flipped = static_cast<char>(good[i] ^ 16);
    ASSERT_EQ(pwrite(fd, &flipped, 1, static_cast<off_t>(i)), 1);
    EXPECT_TRUE(says(refusal(path_), "differs from its hash")) << i;
    ASSERT_EQ(pwrite(fd, &good[i], 1, static_cast<off_t>(i)), 1);
  }
  close(fd);
}

// What nobody asks for costs nothing, and is no reason to refuse what is asked for.
TEST_F(ContainerTest, VerifiesWhatIsRead) {
  for (const int version : {1, 2}) {
    std::string bytes = forged(kSmall, version);
    bytes[bytes.find(kSmall[1].second) + 350] ^= 4;
    write_plain(path_, bytes);
    const ContainerReader reader(path_);
    EXPECT_EQ(reader.text("data/b"), "bias");
    for (int time = 0; time < 2; ++time)
      EXPECT_ERROR((void)reader.record("data/weight"), ExitCode::checkpoint,
                   "record 'data/weight' differs from its hash");
  }
}

TEST_F(ContainerTest, ReadsTheFormatBefore) {
  write_plain(path_, forged(kSmall, 1));
  EXPECT_EQ(test::records_of(path_), kSmall);
  write_records(path_ + "2", kSmall);
  EXPECT_TRUE(read_file(path_ + "2", ExitCode::checkpoint) == forged(kSmall, 2));
}

TEST_F(ContainerTest, NamesThatNoWriterTakesAreRefusedThoughTheirHashesAreRight) {
  const auto refusal_of = [&](const std::vector<std::string>& names) {
    ForgedContainer file;
    for (const std::string& name : names) file.add(name, "x");
    write_plain(path_, file.finish());
    return refusal(path_);
  };
  EXPECT_EQ(refusal_of({"version", "data/weight"}), "");
  for (const char* name : {"", "quote\"", "back\\slash", "two\nlines", "caf\xc3\xa9"}) {
    EXPECT_TRUE(says(refusal_of({"version", name}), "damaged: the record's header at byte 129 is wrong")) << name;
  }
  EXPECT_TRUE(says(refusal_of({std::string(1025, 'n')}), "damaged: the record's header at byte 0 is wrong"));
  const std::string long_name(1024, 'n'), twice = refusal_of({long_name, long_name});
  EXPECT_TRUE(says(twice, "damaged: it has two records 'nnn"));
  EXPECT_LT(twice.size(), 500u);
}

TEST_F(ContainerTest, NamesTheDamagedRecord) {
  write_records(path_, kSmall);
  std::string bytes = read_file(path_, ExitCode::checkpoint);
  bytes[bytes.find(kSmall[1].second) + 350] ^= 4;
  write_plain(path_, bytes);
  EXPECT_TRUE(says(refusal(path_), "damaged: record 'data/weight' differs from its hash"));
}

TEST_F(ContainerTest, EveryTruncationIsRefusedAsSuch) {
  write_records(path_, kSmall);
  const size_t size = fs::file_size(path_);
  const size_t first_header = 128;
  for (size_t length = size - 1; length > 0; --length) {
    fs::resize_file(path_, length);
    const std::string text = refusal(path_);
    ASSERT_NE(text, "") << length;
    if (length >= first_header) {
      ASSERT_TRUE(says(text, "is truncated: it has " + std::to_string(length) + " of ")) << length;
    }
  }
}

TEST_F(ContainerTest, PlausibleMixturesAreRefused) {
  write_records(path_, kSmall);
  const std::string good = read_file(path_, ExitCode::checkpoint);
  Records other = kSmall;
  other[1].second = random_bytes(700, 2);
  write_records(path_, other);
  const std::string bad = read_file(path_, ExitCode::checkpoint);
  ASSERT_EQ(good.size(), bad.size());
  for (size_t cut = 64; cut < good.size(); cut += 64) {
    const std::string mixed = good.substr(0, cut) + bad.substr(cut);
    if (mixed == good || mixed == bad) continue;
    write_plain(path_, mixed);
    ASSERT_NE(refusal(path_), "") << cut;
  }
  for (size_t block = 0; block + 64 <= good.size(); block += 64) {
    std::string zeroed = good;
    zeroed.replace(block, 64, 64, '\0');
    if (zeroed == good) continue;
    write_plain(path_, zeroed);
    ASSERT_NE(refusal(path_), "") << block;
  }
  write_plain(path_, good + "x");
  EXPECT_TRUE(says(refusal(path_), "1 bytes follow its end"));
  write_plain(path_, "x" + good);
  EXPECT_TRUE(says(refusal(path_), "damaged"));
}

TEST_F(ContainerTest, ARecordAndItsHashChangedTogetherAreRefused) {
  write_records(path_, kSmall);
  std::string mixed = read_file(path_, ExitCode::checkpoint);
  Records other = kSmall;
  other[1].second = random_bytes(700, 2);
  write_records(path_, other);
  const ContainerReader reader(path_);
  const size_t manifest = mixed.find("{\"format\"");
  mixed.replace(mixed.find(kSmall[1].second), 700, other[1].second);
  mixed.replace(manifest, reader.text("manifest.json").size(), reader.text("manifest.json"));
  write_plain(path_ + "2", mixed);
  EXPECT_TRUE(says(refusal(path_ + "2"), "damaged: its manifest or headers differ from their digest"));
}

TEST_F(ContainerTest, SaysThatAnotherVersionWroteIt) {
  write_records(path_, kSmall);
  std::string bytes = read_file(path_, ExitCode::checkpoint);
  bytes.replace(bytes.rfind("checkpoint 2 "), 12, "checkpoint 3");
  write_plain(path_, bytes);
  EXPECT_TRUE(says(refusal(path_), "format 3 and this program reads formats 1 to 2"));
}

TEST_F(ContainerTest, SaysWhatAFileIsInstead) {
  using namespace std::string_literals;
  const std::vector<std::pair<std::string, std::string>> zoo = {
      {"", "is empty"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
       "git-lfs pointer; run `git lfs pull`"},
      {"\n <!DOCTYPE html>\n<html><body>404</body></html>", "an HTML page"},
      {"<HTML>", "an HTML page"},
      {"\x1f\x8b\x08\x00 and more", "a gzip file"},
      {"GGUF\x03\x00\x00\x00"s, "a GGUF model"},
      {"\x80\x02}q\x00."s, "a Python pickle"},
      {"PK\x03\x04\x00\x00\x08\x08"s + std::string(18, '\0') + "\x10\x00\x00\x00"s + "archive/data.pkl",
       "a PyTorch file without"},
      {"PK\x03\x04"s + std::string(60, '\0'), "a ZIP archive, but"},
      {"\x40\x00\x00\x00\x00\x00\x00\x00{\"weight\":"s, "a safetensors file"},
      {std::string(5000, '\0'), "nothing but zeros"},
      {"Twelve monkeys", "not a checkpoint of gpt-train"},
      {"x", "not a checkpoint of gpt-train"},
  };
  for (const auto& [bytes, what] : zoo) {
    write_plain(path_, bytes);
    EXPECT_TRUE(says(refusal(path_), what));
  }
}

TEST_F(ContainerTest, RefusesWhatIsNoFileWithoutWaiting) {
  EXPECT_TRUE(says(refusal(folder_ + "/missing.pt"), "No such file"));
  EXPECT_TRUE(says(refusal(folder_), "it is a folder"));
  EXPECT_TRUE(says(refusal("/dev/zero"), "not a regular file"));
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_TRUE(says(refusal(path_), "not a regular file"));
  fs::create_symlink("loop", folder_ + "/loop");
  EXPECT_NE(refusal(folder_ + "/loop"), "");
}

// Runs `body` in a child; returns what waitpid says. A child that throws exits with the error's code.
template <class Body>
pid_t spawn(Body body) {
  const pid_t child = fork();
  if (child != 0) return child;
  try {
    body();
    _exit(0);
  } catch (const Error& error) { _exit(static_cast<int>(error.code())); }
}

int wait_for(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

bool leaves_only(const std::string& folder, const std::string& name) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename() != name) return false;
  }
  return true;
}

TEST_F(ContainerTest, AFullDiskAtAnySizeKeepsTheOldFile) {
  const Records old = {{"data/weight", "old"}};
  write_records(path_, old);
  const std::string before = read_file(path_, ExitCode::checkpoint);
  write_records(path_ + "2", kSmall);
  const rlim_t size = fs::file_size(path_ + "2");
  fs::remove(path_ + "2");
  for (rlim_t limit = 0; limit < size; limit += 7) {
    const int status = wait_for(spawn([&] {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit file_size{limit, limit};
      setrlimit(RLIMIT_FSIZE, &file_size);
      write_records(path_, kSmall);
    }));
    ASSERT_TRUE(WIFEXITED(status)) << limit;
    ASSERT_EQ(WEXITSTATUS(status), static_cast<int>(ExitCode::disk)) << limit;
    ASSERT_EQ(read_file(path_, ExitCode::checkpoint), before) << limit;
    ASSERT_TRUE(leaves_only(folder_, "ckpt.pt")) << limit;
  }
}

TEST_F(ContainerTest, AKillAtEverySystemCallLeavesTheOldFileOrTheNewOne) {
  write_records(path_, {{"data/weight", "old"}});
  const std::string before = read_file(path_, ExitCode::checkpoint);
  write_records(path_ + "2", kSmall);
  const std::string after = read_file(path_ + "2", ExitCode::checkpoint);
  fs::remove(path_ + "2");
  int killed_before_rename = 0, killed_after_rename = 0;
  for (int kill_at = 1;; ++kill_at) {
    write_plain(path_, before);
    const pid_t child = spawn([&] {
      if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
      raise(SIGSTOP);
      write_records(path_, kSmall);
    });
    int status = wait_for(child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "this machine does not allow ptrace";
    for (int call = 0; call < kill_at && WIFSTOPPED(status); ++call) {  // stops before and after each system call
      ASSERT_EQ(ptrace(PTRACE_SYSCALL, child, nullptr, nullptr), 0);
      status = wait_for(child);
    }
    if (WIFEXITED(status)) break;
    kill(child, SIGKILL);
    wait_for(child);
    const std::string left = read_file(path_, ExitCode::checkpoint);
    ASSERT_TRUE(left == before || left == after) << "killed at stop " << kill_at;
    ++(left == before ? killed_before_rename : killed_after_rename);
  }
  EXPECT_GT(killed_before_rename, 20);
  EXPECT_GT(killed_after_rename, 2);
}

TEST_F(ContainerTest, AKillAtAnyMomentLeavesTheOldFileOrTheNewOne) {
  const auto contents = [](int number) {
    return Records{{"number", std::to_string(number)},
                   {"data/weight", random_bytes(300'000, static_cast<uint32_t>(number))}};
  };
  write_records(path_, contents(0));
  std::mt19937 random(1);
  int last = 0;
  for (int round = 0; round < 20; ++round) {
    int saved[2];
    ASSERT_EQ(pipe(saved), 0);
    const pid_t child = spawn([&] {
      for (int number = last + 1;; ++number) {
        write_records(path_, contents(number));
        if (write(saved[1], "s", 1) != 1) _exit(1);
      }
    });
    char one_save = 0;
    ASSERT_EQ(read(saved[0], &one_save, 1), 1);
    usleep(random() % 20'000);
    kill(child, SIGKILL);
    wait_for(child);
    close(saved[0]);
    close(saved[1]);
    const ContainerReader reader(path_);
    const int number = std::stoi(std::string(reader.text("number")));
    ASSERT_GT(number, last);
    ASSERT_EQ(reader.text("data/weight"), contents(number)[1].second);
    last = number;
  }
  // A start in that folder removes what the killed ones left.
  { const FolderLock lock(folder_, ExitCode::checkpoint, "output_dir"); }
  EXPECT_TRUE(leaves_only(folder_, "ckpt.pt"));
}

}  // namespace
}  // namespace gpt::container
