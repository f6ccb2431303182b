// Pieces of a container's records, which are verified and written one by one.
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "container/records.h"
#include "core/scratch_folder.h"
#include "gpt/container/container.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"

namespace gpt::container {
namespace {

std::string noise(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// The pieces of 16 MB that have some of the bytes are verified, and no others.
TEST(ContainerPieces, VerifiesWhatIsReadOfARecord) {
  const ScratchFolder folder;
  const std::string path = folder / "ckpt.pt";
  const std::string bytes = noise(40 << 20, 1);
  test::write_records(path, {{"data/large", bytes}, {"data/empty", ""}});
  const size_t damaged = 20 << 20;  // in the second piece
  const size_t begin = read_file(path, ExitCode::checkpoint).find(bytes.substr(0, 100));
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(begin + damaged)).put(static_cast<char>(~bytes[damaged]));
  file.close();
  const ContainerReader reader(path);
  EXPECT_EQ(reader.size("data/large"), bytes.size());
  const auto part = [&](size_t first, size_t last) {
    const std::span<const std::byte> read = reader.record("data/large", first, last);
    return std::string(reinterpret_cast<const char*>(read.data()), read.size());
  };
  const size_t piece = 16 << 20;
  EXPECT_EQ(part(1000, piece - begin), bytes.substr(1000, piece - begin - 1000));
  EXPECT_EQ(part(2 * piece - begin, bytes.size()), bytes.substr(2 * piece - begin));
  EXPECT_TRUE(reader.record("data/empty", 0, 0).empty());
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW((void)part(piece - begin - 1, piece - begin + 1), Error);
    EXPECT_THROW((void)part(damaged, damaged + 1), Error);
    EXPECT_THROW((void)reader.record("data/large"), Error);
  }
}

// A file that one process begins and commits, and of which another has written pieces.
TEST(ContainerPieces, AnotherWriterMayWriteSomeOfThePieces) {
  const ScratchFolder folder;
  const std::string path = folder / "ckpt.pt";
  const test::Records records = {{"data/a", noise(40 << 20, 1)}, {"data/b", "few"}};
  test::write_records(path, records);
  const std::string alone = read_file(path, ExitCode::checkpoint);
  std::vector<RecordPlan> plan;
  for (const auto& [name, bytes] : records) plan.push_back({name, bytes.size()});
  ContainerWriter first(path + "2", plan), second(path + "2", plan, first.unfinished_path());
  ASSERT_EQ(container_pieces(plan).size(), first.pieces().size());
  for (size_t i = 0; i < first.pieces().size(); ++i) {
    const auto& [record, begin, end] = first.pieces()[i];
    const std::span<const std::byte> bytes =
        std::as_bytes(std::span(records[record].second).subspan(begin, end - begin));
    (i % 2 == 0 ? first : second).write(i, bytes);
    if (i % 2 == 1) { EXPECT_THROW(first.commit(), std::logic_error); }
    if (i % 2 == 1) first.take(i, second.sums(i));
  }
  second.sync();
  first.commit();
  EXPECT_TRUE(read_file(path + "2", ExitCode::checkpoint) == alone);
}

}  // namespace
}  // namespace gpt::container
