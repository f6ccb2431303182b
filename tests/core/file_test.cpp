#include "gpt/core/file.h"
#include "gpt/core/lock.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/child_process.h"
#include "core/failing_calls.h"
#include "core/scratch_folder.h"

namespace gpt {
namespace {

void spill(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

size_t entries(const std::string& folder) {
  const std::filesystem::directory_iterator begin(folder), end;
  return static_cast<size_t>(std::distance(begin, end));
}

template <class Body>
Error error_of(Body body) {
  try {
    body();
  } catch (const Error& e) { return e; }
  return Error(ExitCode::ok, "no error");
}

// A process id that nobody has: a child that was waited for.
pid_t dead_process() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  wait_for(child);
  return child;
}

// The error of a process that has no terminal.
Error run_detached(void (*body)()) {
  const ChildResult child = run_child([&] {
    setsid();
    const Error error = error_of(body);
    dprintf(STDERR_FILENO, "%s", error.what());
    return static_cast<int>(error.code());
  });
  return Error(static_cast<ExitCode>(child.status), child.errors);
}

TEST(ReadFile, ReturnsEveryByte) {
  ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += static_cast<char>(i * 7);
  spill(folder / "a", text);
  EXPECT_EQ(read_file(folder / "a", ExitCode::data), text);
  spill(folder / "empty", "");
  EXPECT_EQ(read_file(folder / "empty", ExitCode::data), "");
}

TEST(ReadFile, NamesFileAndCauseWithTheCallersCode) {
  ScratchFolder folder;
  const Error missing = error_of([&] { read_file(folder / "none", ExitCode::data); });
  EXPECT_EQ(missing.code(), ExitCode::data);
  EXPECT_EQ(missing.what(), "cannot read " + (folder / "none") + ": No such file or directory");
  const Error is_folder = error_of([&] { read_file(folder.path(), ExitCode::config); });
  EXPECT_EQ(is_folder.code(), ExitCode::config);
  EXPECT_EQ(is_folder.what(), "cannot read " + folder.path() + ": it is a folder");
  EXPECT_EQ(error_of([] { read_file("/dev/zero", ExitCode::data); }).code(), ExitCode::data);
}

TEST(ReadFile, LooksAtTheKindBeforeItOpens) {
  // Without a terminal it cannot be opened at all.
  const Error error = run_detached([] { read_file("/dev/tty", ExitCode::data); });
  EXPECT_STREQ(error.what(), "cannot read /dev/tty: it is a device, not a file");
  const Error mapped = run_detached([] { MappedFile("/dev/tty", ExitCode::data); });
  EXPECT_STREQ(mapped.what(), "cannot read /dev/tty: it is not a regular file");
}

TEST(ReadFile, RefusesWhatIsLargerThanItMayBe) {
  ScratchFolder folder;
  const std::string path = folder.file("a", "12345678");
  EXPECT_EQ(read_file(path, ExitCode::data, SizeLimit{"a note", 8}), "12345678");
  std::filesystem::resize_file(path, 3'000'000'000);  // takes no space; reading it would take that much memory
  const Error large = error_of([&] { read_file(path, ExitCode::config, SizeLimit{"a note", 8}); });
  EXPECT_EQ(large.code(), ExitCode::config);
  EXPECT_EQ(large.what(), "cannot read " + path + ": it has 3,000,000,000 bytes; a note has at most 8");

  const std::string pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const ChildResult child = run_child([&] {  // the child's alarm ends a hang
    signal(SIGPIPE, SIG_IGN);
    std::thread([&] { std::ofstream(pipe) << std::string(1'000'000, 'x'); }).detach();
    dprintf(STDERR_FILENO, "%s", error_of([&] { read_file(pipe, ExitCode::data, SizeLimit{"a note", 1000}); }).what());
    return 0;
  });
  EXPECT_EQ(child.errors.find("cannot read " + pipe + ": it has at least "), 0u) << child.errors;
}

TEST(CreateFolders, MakesParentsAndAcceptsExistingOnes) {
  ScratchFolder folder;
  create_folders(folder / "a/b/c");
  create_folders(folder / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b/c"));
  spill(folder / "file", "");
  EXPECT_EQ(error_of([&] { create_folders(folder / "file/x"); }).code(), ExitCode::disk);
}

TEST(FreeDiskSpace, NamesAMissingFolder) {
  EXPECT_GT(free_disk_space("/"), 0u);
  EXPECT_EQ(error_of([] { free_disk_space("/no/such/folder"); }).code(), ExitCode::disk);
}

TEST(AtomicFile, AppearsOnlyWhenCommitted) {
  ScratchFolder folder;
  const std::string path = folder / "ckpt.pt";
  spill(path, "old");
  AtomicFile file(path);
  file.write("new ");
  file.write(std::as_bytes(std::span("text", 4)));
  EXPECT_EQ(file.size(), 8u);
  EXPECT_EQ(slurp(path), "old");
  file.commit();
  EXPECT_EQ(slurp(path), "new text");
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(AtomicFile, LeavesNothingWithoutCommit) {
  ScratchFolder folder;
  {
    AtomicFile file(folder / "a");
    file.write("text");
    EXPECT_EQ(entries(folder.path()), 1u);
  }
  EXPECT_EQ(entries(folder.path()), 0u);
}

TEST(AtomicFile, TakesTheUsualPermissions) {
  ScratchFolder folder;
  const mode_t before = umask(027);
  AtomicFile file(folder / "a");
  umask(before);
  file.commit();
  struct stat info{};
  ASSERT_EQ(stat((folder / "a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST(AtomicFile, WorksInTheWorkingFolder) {
  ScratchFolder folder;
  const ChildResult child = run_child([&] {
    if (chdir(folder.path().c_str()) != 0) return 1;
    AtomicFile file("plain_name");
    file.write("text");
    file.commit();
    return 0;
  });
  EXPECT_EQ(child.status, 0) << child.errors;
  EXPECT_EQ(slurp(folder / "plain_name"), "text");
}

TEST(AtomicFile, FailedWriteLeavesTheOldFileAndIsFinal) {
  ScratchFolder folder;
  const std::string path = folder / "ckpt.pt";
  spill(path, "old");
  const ChildResult child = run_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 16, 1 << 16};
    setrlimit(RLIMIT_FSIZE, &limit);
    AtomicFile file(path);
    const std::string block(50'000, 'x');
    file.write(block);
    const Error error = error_of([&] { file.write(block); });  // the kernel takes a part of it first
    dprintf(STDERR_FILENO, "%s", error.what());
    const bool final = error_of([&] { file.commit(); }).code() == ExitCode::disk &&
                       error_of([&] { file.write("x"); }).code() == ExitCode::disk;
    return final && entries(folder.path()) == 1 ? static_cast<int>(error.code()) : 50;
  });
  EXPECT_EQ(child.errors, "cannot write " + path + ": write failed: File too large");
  EXPECT_EQ(child.status, static_cast<int>(ExitCode::disk));
  EXPECT_EQ(slurp(path), "old");
}

TEST(AtomicFile, AFullDiskIsNamedWithNeededAndFreeSpace) {
  ScratchFolder folder;
  const ChildResult child = run_child([&] {
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return kNotPermitted;
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kNotPermitted;
    if (mount("none", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) return kNotPermitted;
    const std::string block(700'000, 'x');
    for (const uint64_t expected : {uint64_t{0}, uint64_t{1'234'000'000}}) {
      AtomicFile file(folder / "ckpt.pt", expected);
      file.write(block);
      const Error error = error_of([&] { file.write(block); });
      dprintf(STDERR_FILENO, "%s\n", error.what());
      if (error.code() != ExitCode::disk) return 1;
    }
    return 0;
  });
  if (child.status == kNotPermitted) GTEST_SKIP() << "mounting a small file system is not permitted here";
  EXPECT_EQ(child.status, 0);
  const std::string message = "cannot write " + (folder / "ckpt.pt") + ": write failed: No space left on device ";
  EXPECT_EQ(child.errors, message + "(1.05 MB free)\n" + message + "(needed 1.23 GB, 1.05 MB free)\n");
}

TEST(AtomicFile, AFullDiskIsNamedThoughItsFreeSpaceIsNotKnown) {
  ScratchFolder folder;
  const ChildResult child = run_child([&] {
    if (!fail_calls({{SYS_fsync, EDQUOT}, {SYS_statfs, EIO}})) return kNotPermitted;
    for (const uint64_t expected : {uint64_t{0}, uint64_t{2'000}}) {
      AtomicFile file(folder / "ckpt.pt", expected);
      dprintf(STDERR_FILENO, "%s\n", error_of([&] { file.commit(); }).what());
    }
    return 0;
  });
  if (child.status == kNotPermitted) GTEST_SKIP() << "this machine does not let system calls fail";
  const std::string message = "cannot write " + (folder / "ckpt.pt") + ": fsync failed: Disk quota exceeded";
  EXPECT_EQ(child.errors, message + "\n" + message + " (needed 2.00 kB)\n");
}

TEST(NamesIn, AFolderThatCannotBeListedIsAnErrorAndOneThatIsNotThereIsEmpty) {
  ScratchFolder folder;
  folder.file("b", "");
  folder.file("a/c", "");
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(names_in(folder / "nothing"), std::vector<std::string>());
  EXPECT_EQ(error_of([&] { names_in(folder / "b"); }).what(),
            "cannot list the files in " + (folder / "b") + ": Not a directory");
  const ChildResult child = run_child([&] {
    if (!fail_calls({{SYS_getdents64, EIO}})) return kNotPermitted;
    dprintf(STDERR_FILENO, "%s\n", error_of([&] { names_in(folder.path()); }).what());
    std::error_code error;
    return names_in(folder.path(), error).empty() && error.value() == EIO ? 0 : 1;
  });
  if (child.status == kNotPermitted) GTEST_SKIP() << "this machine does not let system calls fail";
  EXPECT_EQ(child.status, 0);
  EXPECT_EQ(child.errors, "cannot list the files in " + folder.path() + ": Input/output error\n");
}

TEST(AtomicFile, NamesWhatCannotBeOpenedOrReplaced) {
  ScratchFolder folder;
  EXPECT_EQ(error_of([&] { AtomicFile(folder / "none/a"); }).what(),
            "cannot write " + (folder / "none/a") + ": open failed: No such file or directory");
  create_folders(folder / "taken/inside");
  const Error error = error_of([&] {
    AtomicFile file(folder / "taken");
    file.commit();
  });
  EXPECT_EQ(error.code(), ExitCode::disk);
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(AppendFile, AppendsWholeLines) {
  ScratchFolder folder;
  {
    AppendFile file(folder / "metrics.jsonl");
    file.line("a");
    EXPECT_EQ(slurp(folder / "metrics.jsonl"), "a\n");
    file.line("b");
  }
  AppendFile(folder / "metrics.jsonl").line("c");
  EXPECT_EQ(slurp(folder / "metrics.jsonl"), "a\nb\nc\n");
}

TEST(AppendFile, AHalfLineOfAKilledProcessDoesNotSwallowTheNext) {
  ScratchFolder folder;
  spill(folder / "a", "whole\nhal");
  AppendFile(folder / "a").line("next");
  EXPECT_EQ(slurp(folder / "a"), "whole\nhal\nnext\n");
}

TEST(AppendFile, AFailedLineLeavesNoHalf) {
  ScratchFolder folder;
  const ChildResult child = run_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    setrlimit(RLIMIT_FSIZE, &limit);
    AppendFile file(folder / "a");
    file.line("whole");
    return static_cast<int>(error_of([&] { file.line(std::string(200, 'x')); }).code());
  });
  EXPECT_EQ(child.status, static_cast<int>(ExitCode::disk)) << child.errors;
  EXPECT_EQ(slurp(folder / "a"), "whole\n");
}

TEST(MappedFile, MapsTheWholeFile) {
  ScratchFolder folder;
  std::string text(10'001, 'a');
  text.back() = 'z';
  spill(folder / "a", text);
  const MappedFile file(folder / "a", ExitCode::data);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()), text);
  spill(folder / "empty", "");
  EXPECT_TRUE(MappedFile(folder / "empty", ExitCode::data).bytes().empty());
}

TEST(MappedFile, RefusesFoldersAndPipesAtOnce) {
  ScratchFolder folder;
  EXPECT_EQ(error_of([&] { MappedFile(folder.path(), ExitCode::data); }).code(), ExitCode::data);
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  const ChildResult child = run_child([&] {  // the child's alarm ends a hang
    return static_cast<int>(error_of([&] { MappedFile(folder / "pipe", ExitCode::checkpoint); }).code());
  });
  EXPECT_EQ(child.status, static_cast<int>(ExitCode::checkpoint)) << child.errors;
}

TEST(FileLock, ASecondOneTriesAgainUntilTheFirstHasGone) {
  const ScratchFolder folder;
  const std::string path = folder / "lock", holder = "process " + std::to_string(getpid());
  auto first = std::make_unique<FileLock>(path, [](const std::string&) { FAIL(); });
  int calls = 0;
  {
    const FileLock second(path, [&](const std::string& who) {
      EXPECT_EQ(who, holder);
      if (++calls == 3) first.reset();
    });
    EXPECT_EQ(calls, 3);
    EXPECT_THROW(FileLock(path, [](const std::string& who) { throw std::runtime_error(who); }), std::runtime_error);
  }
  EXPECT_EQ(entries(folder.path()), 0u);
}

TEST(FileLock, IsTakenOverFromAKilledHolder) {
  const ScratchFolder folder;
  const std::string path = folder.file("lock", std::to_string(dead_process()) + "0000");
  const FileLock lock(path, [](const std::string&) { FAIL(); });
  EXPECT_EQ(slurp(path), std::to_string(getpid()));
}

// Lockers that open the file just before its holder removes it hold a lock that nobody else sees.
TEST(FileLock, OneAtATimeThoughTheFileComesAndGoes) {
  const ScratchFolder folder;
  std::atomic<int> inside = 0, most = 0;
  const auto lock_often = [&] {
    for (int i = 0; i < 500; ++i) {
      const FileLock lock(folder / "lock", [](const std::string&) {});
      most = std::max<int>(most, ++inside);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      --inside;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(lock_often);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(entries(folder.path()), 0u);
}

// On a mount without locks.
class WithoutLocks : public testing::TestWithParam<int> {
 protected:
  std::string host() const {
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    return name;
  }
  // What a start in the folder says; the folder's lock file as it is then comes last.
  std::string start() const {
    const ChildResult child = run_child([&] {
      if (!fail_calls({{SYS_flock, GetParam()}})) return kNotPermitted;
      const Error error = error_of([&] {
        const FolderLock lock(folder_.path(), ExitCode::checkpoint, "output_dir");
        dprintf(STDERR_FILENO, "%s", slurp(folder_ / ".lock").c_str());
        const Error own = error_of([&] { FolderLock(folder_.path(), ExitCode::checkpoint, "output_dir"); });
        if (own.code() != ExitCode::checkpoint) dprintf(STDERR_FILENO, "locked twice");
      });
      if (error.code() != ExitCode::ok) dprintf(STDERR_FILENO, "%s", error.what());
      return static_cast<int>(error.code());
    });
    return child.status == kNotPermitted ? "" : child.errors;
  }
  ScratchFolder folder_;
};

TEST_P(WithoutLocks, TheLockFileNamesItsHolder) {
  const std::string said = start();
  if (said.empty()) GTEST_SKIP() << "this machine does not let system calls fail";
  EXPECT_NE(said.find("warning: " + (folder_ / ".lock") + ": this file system has no locks ("), std::string::npos)
      << said;
  EXPECT_EQ(said.find("warning: "), said.rfind("warning: ")) << said;  // one is enough
  EXPECT_NE(said.find(" on " + host() + " since 20"), std::string::npos) << said;
  EXPECT_EQ(said.find("locked twice"), std::string::npos) << said;
  EXPECT_EQ(entries(folder_.path()), 0u);
  EXPECT_NE(start().find(" UTC"), std::string::npos);  // and again
}

TEST_P(WithoutLocks, AFileThatIsThereClaimsTheFolder) {
  const std::string dead = std::to_string(dead_process());
  const std::string claims[] = {"1 on " + host() + " since 2020-01-01 00:00:00 UTC", dead + " on elsewhere since then",
                                "1", ""};
  for (const std::string& claim : claims) {
    folder_.file(".lock", claim);
    const std::string said = start();
    if (said.empty()) GTEST_SKIP() << "this machine does not let system calls fail";
    EXPECT_EQ(said, folder_.path() + " is in use by " + (claim.empty() ? "another process" : "process " + claim) +
                        " (it holds no lock: remove " + (folder_ / ".lock") +
                        " if it has gone): wait for it, stop it, or choose another output_dir");
    EXPECT_EQ(slurp(folder_ / ".lock"), claim);
  }
  // Where there are locks it is heeded too: the other host may have none.
  folder_.file(".lock", claims[1]);
  EXPECT_EQ(error_of([&] { FolderLock(folder_.path(), ExitCode::checkpoint, "output_dir"); }).what(),
            folder_.path() + " is in use by process " + claims[1] + " (it holds no lock: remove " +
                (folder_ / ".lock") + " if it has gone): wait for it, stop it, or choose another output_dir");
}

TEST_P(WithoutLocks, AClaimOfADeadProcessIsTakenOver) {
  const std::string dead = std::to_string(dead_process()) + " on " + host() + " since 2020-01-01 00:00:00 UTC";
  folder_.file(".lock", dead);
  const std::string said = start();
  if (said.empty()) GTEST_SKIP() << "this machine does not let system calls fail";
  EXPECT_EQ(said.find("is in use"), std::string::npos) << said;
  EXPECT_EQ(entries(folder_.path()), 0u);
  // A container whose first process was killed gives its id again. That is this one.
  folder_.file(".lock", std::to_string(getpid()) + " on " + host() + " since 2020-01-01 00:00:00 UTC");
  { const FolderLock lock(folder_.path(), ExitCode::checkpoint, "output_dir"); }
  EXPECT_EQ(entries(folder_.path()), 0u);
}

INSTANTIATE_TEST_SUITE_P(FolderLock, WithoutLocks, testing::Values(ENOSYS, ENOLCK, EOPNOTSUPP));

TEST(FolderLock, ASecondProcessIsRefusedWithTheHoldersId) {
  ScratchFolder folder;
  const std::string expected = folder.path() + " is in use by process " + std::to_string(getpid()) +
                               ": wait for it, stop it, or choose another output_dir";
  auto try_lock = [&] {
    return run_child([&] {
      const Error error = error_of([&] { FolderLock lock(folder.path(), ExitCode::checkpoint, "output_dir"); });
      dprintf(STDERR_FILENO, "%s", error.what());
      return static_cast<int>(error.code());
    });
  };
  {
    FolderLock lock(folder.path(), ExitCode::checkpoint, "output_dir");
    const ChildResult second = try_lock();
    EXPECT_EQ(second.status, static_cast<int>(ExitCode::checkpoint));
    EXPECT_EQ(second.errors, expected);
  }
  EXPECT_EQ(try_lock().status, static_cast<int>(ExitCode::ok));
  EXPECT_EQ(entries(folder.path()), 0u);
}

TEST(FolderLock, RemovesWhatKilledWritersLeftAndNothingElse) {
  ScratchFolder folder;
  const AtomicFile alive(folder / "alive");
  // A container gives the same process ids again: that of a writer says nothing of whether it lives.
  for (const pid_t writer : {dead_process(), getpid(), pid_t{1}}) {
    folder.file(".ckpt.pt.tmp-" + std::to_string(writer) + "-0123abcd", "half");
    folder.file("samples/.step_00000100.txt.tmp-" + std::to_string(writer) + "-0123abcd", "half");
  }
  const std::string others[] = {"ckpt.tmp-1-0123abcd", ".notes.tmp-file", ".notes.tmp-1-file", ".notes.tmp-1",
                                "samples/a.txt"};
  for (const std::string& other : others) folder.file(other, "not ours");
  FolderLock lock(folder.path(), ExitCode::checkpoint, "output_dir");
  for (const std::string& other : others) EXPECT_EQ(slurp(folder / other), "not ours");
  EXPECT_TRUE(std::filesystem::exists(alive.unfinished_path()));
  EXPECT_EQ(entries(folder.path()), 7u);  // the lock, the file being written, samples, the four that are not ours
  EXPECT_EQ(entries(folder / "samples"), 1u);
}

TEST(FolderLock, SweepsWhileOthersWriteWithoutIt) {
  ScratchFolder folder;
  std::atomic<bool> stop = false;
  std::thread sweeper([&] {
    while (!stop) FolderLock(folder.path(), ExitCode::checkpoint, "output_dir");
  });
  for (int i = 0; i < 300; ++i) {
    AtomicFile file(folder / "story.txt");
    file.write(std::to_string(i));
    EXPECT_NO_THROW(file.commit());
  }
  stop = true;
  sweeper.join();
  EXPECT_EQ(slurp(folder / "story.txt"), "299");
  EXPECT_EQ(entries(folder.path()), 1u);
}

}  // namespace
}  // namespace gpt
