// What a preparation that fails or is killed leaves of the output that was there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "core/child_process.h"
#include "core/failing_calls.h"
#include "core/killed_child.h"
#include "core/scratch_folder.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/hash.h"
#include "gpt/data/bin.h"
#include "gpt/prepare/prepare.h"
#include "support/expect_error.h"

namespace gpt::prepare {
namespace {

namespace fs = std::filesystem;

class PreparedOutput : public testing::Test {
 protected:
  PrepareOptions options(const std::string& text) const {
    PrepareOptions result;
    result.inputs = {folder_.file(text + ".txt", text)};
    result.tokenizer = "byte";
    result.threads = 1;
    return result;
  }
  data::Metadata prepare(const PrepareOptions& options) const { return prepare::prepare(options, output()); }
  std::string output() const { return folder_ / "out"; }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(output())) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  ScratchFolder folder_;
};

TEST_F(PreparedOutput, AFailureKeepsTheFormerOutput) {
  PrepareOptions o = options("text");
  const data::Metadata former = prepare(o);
  const auto still_there = [&] {
    EXPECT_EQ(files(), (std::vector<std::string>{"bpe_tokenizer.json", "tokens_bpe.bin", "tokens_bpe_metadata.json"}));
    EXPECT_EQ(data::read_metadata(output() + "/tokens_bpe_metadata.json"), former);
    EXPECT_EQ(hash128(read_file(output() + "/tokens_bpe.bin", ExitCode::data)), former.bin_hash);
  };
  o = options("another text");
  for (const FailingCall call : {FailingCall{SYS_fsync, EIO}, {SYS_rename, EIO}}) {
    const ChildResult child = run_with_failing_calls({call}, [&] { prepare(o); });
    if (child.status == kNotPermitted) GTEST_SKIP() << "this machine does not let system calls fail";
    EXPECT_EQ(child.status, static_cast<int>(ExitCode::disk)) << child.errors;
    still_there();
  }
  fs::remove(output() + "/bpe_tokenizer.json");
  folder_.file("out/bpe_tokenizer.json/in_the_way", "");  // a folder, which no file can replace
  EXPECT_ERROR(prepare(o), ExitCode::disk, "bpe_tokenizer.json");
  still_there();
}

TEST_F(PreparedOutput, AKillLeavesTheFormerOutputOrTheNewOne) {
  const PrepareOptions before = options("text"), after = options("another text");
  const std::string bin = output() + "/tokens_bpe.bin";
  const auto is_whole = [&] {
    const data::Bin found = data::open_bin({.path = bin, .is_prepared = true});
    return hash128(read_file(bin, ExitCode::data)) == found.metadata.bin_hash;
  };
  int kills = 0;
  for (int stop = 1;; stop += 3) {
    prepare(before);
    const Ending ending = kill_at_stop(stop, [&] { prepare(after); });
    if (ending == Ending::not_permitted) GTEST_SKIP() << "this machine does not allow ptrace";
    if (ending == Ending::ended) break;
    ++kills;
    ASSERT_TRUE(is_whole()) << "killed at stop " << stop;
  }
  EXPECT_GT(kills, 30);
}

}  // namespace
}  // namespace gpt::prepare
