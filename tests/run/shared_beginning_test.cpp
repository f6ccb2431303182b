#include "gpt/run/shared_beginning.h"

#include <gtest/gtest.h>

#include <string>

#include "distributed/local_group.h"
#include "gpt/core/error.h"

namespace gpt::run {
namespace {

TEST(SharedBeginning, NamesOfFilesNeedNotBeUtf8) {
  config::CommandLine command;
  Config& config = command.config;
  config.data.text = "t\xff.txt", config.output_dir = "r\xfe";
  test::in_ranks(2, [&](const distributed::Group& group) { require_same_command(group, command); });
}

TEST(SharedBeginning, WhoHasAnotherConfigurationSaysSoItself) {
  std::string said[3];
  ExitCode codes[3] = {};
  try {
    test::in_ranks(3, [&](const distributed::Group& group) {
      const int64_t rank = group.ranks().rank;
      config::CommandLine command;
      command.config.seed = rank == 1 ? 9 : 8;
      try {
        require_same_command(group, command);
      } catch (const Error& error) {
        said[rank] = error.what(), codes[rank] = error.code();
        throw;
      }
    });
    FAIL();
  } catch (const Error&) {}
  for (const int64_t rank : {0, 1}) {
    EXPECT_NE(said[rank].find("rank 1 has another configuration than rank 0 (seed: 9 instead of 8)"), std::string::npos)
        << said[rank];
    EXPECT_EQ(codes[rank], ExitCode::config);
  }
  EXPECT_EQ(codes[2], ExitCode::peer) << said[2];
}

}  // namespace
}  // namespace gpt::run
