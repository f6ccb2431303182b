// Batches of conversations: rows of segments, alone and beside windows of text.
#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "gpt/batches/data_loader.h"
#include "gpt/ops/document_starts.h"
#include "support/conversations.h"
#include "support/device_cases.h"
#include "support/expect_error.h"

namespace gpt::batches {
namespace {

constexpr int64_t kChatVocab = 1000, kChatLength = 24;

std::vector<int64_t> lengths_of_chats() {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 60; ++i) lengths.push_back(4 + i * i % 19);
  return lengths;
}

data::Tokens some_chats() { return test::conversations(lengths_of_chats(), kChatVocab).tokens(kChatVocab); }

data::Tokens some_text(int64_t size) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < size; ++i) ids.push_back(static_cast<int32_t>(i * 37 % 500));
  return data::Tokens::from_ids(ids, kChatVocab);
}

struct LoaderWay {
  const char* name;
  Resident resident;
  int64_t workers;
};
void PrintTo(const LoaderWay& way, std::ostream* out) { *out << way.name; }

class LoaderOfConversations : public testing::TestWithParam<std::tuple<LoaderWay, DeviceCase>> {
 protected:
  void SetUp() override { GPT_SKIP_WITHOUT(std::get<1>(GetParam())); }
  at::Device device() const { return std::get<1>(GetParam()).device; }
  DataConfig config() const {
    DataConfig config;
    config.resident = std::get<0>(GetParam()).resident, config.num_workers = std::get<0>(GetParam()).workers;
    return config;
  }
};

bool is_equal(const Batch& a, const Batch& b) {
  return at::equal(a.inputs.cpu(), b.inputs.cpu()) && at::equal(a.targets.cpu(), b.targets.cpu()) &&
         a.starts.defined() == b.starts.defined() && (!a.starts.defined() || at::equal(a.starts.cpu(), b.starts.cpu()));
}

// What the rows of a batch hold, told by their starts: how often each conversation was there.
void count_conversations(const Batch& batch, std::map<std::vector<int64_t>, int64_t>& found) {
  const at::Tensor inputs = batch.inputs.cpu(), starts = batch.starts.cpu();
  for (int64_t row = 0; row < inputs.size(0); ++row) {
    for (int64_t t = 0; t < kChatLength;) {
      const int64_t begin = starts[row][t].item<int64_t>();
      EXPECT_EQ(begin, t);
      std::vector<int64_t> ids;
      for (; t < kChatLength && starts[row][t].item<int64_t>() == begin; ++t)
        ids.push_back(inputs[row][t].item<int64_t>());
      ++found[ids];
    }
  }
}

TEST_P(LoaderOfConversations, AnEpochHasEachOneOnceInTheSameRowsEveryWay) {
  const data::Tokens chats = some_chats();
  DataLoader loader(chats, config(), 3, kChatLength, 5, device()), reference(chats, {}, 3, kChatLength, 5, at::kCPU);
  const data::PackedRows rows(chats, kChatLength, true, 5);
  EXPECT_EQ(loader.samples_per_epoch(), rows.size());
  std::map<std::vector<int64_t>, int64_t> found;
  const int64_t batches = loader.batches_per_epoch();
  int64_t learned = 0;
  for (int64_t i = 0; i < batches; ++i) {
    const int64_t ahead = loader.learned_ahead(1);
    EXPECT_TRUE(loader.next_shape().has_starts);
    const Batch batch = loader.next();
    ASSERT_TRUE(is_equal(batch, reference.next()));
    EXPECT_EQ(batch.starts.scalar_type(), at::kInt);
    EXPECT_EQ((batch.targets >= 0).sum().item<int64_t>(), ahead);
    learned += ahead;
    count_conversations(batch, found);
  }
  EXPECT_EQ(learned, rows.learned());
  int64_t start = 0;
  for (const int64_t length : lengths_of_chats()) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i + 1 < length; ++i) ids.push_back(chats[start + i]);
    EXPECT_EQ(found[ids], 1) << start;
    start += length;
  }
  EXPECT_EQ(loader.tokens_seen(), rows.size() * kChatLength) << "positions, padding too";
  EXPECT_FALSE(is_equal(loader.next(),
                        [&] {
                          DataLoader again(chats, {}, 3, kChatLength, 5, at::kCPU);
                          return again.next();
                        }()))
      << "another epoch has another order";
}

TEST_P(LoaderOfConversations, GoOnFromAnyPosition) {
  DataLoader loader(some_chats(), config(), 4, kChatLength, 5, device());
  for (int64_t i = 0; i < 3 * loader.batches_per_epoch(); ++i) {
    DataLoader resumed(some_chats(), config(), 4, kChatLength, 5, device());
    resumed.seek(loader.position());
    const int64_t ahead = resumed.learned_ahead(3);
    EXPECT_EQ(ahead, loader.learned_ahead(3));
    ASSERT_TRUE(is_equal(loader.next(), resumed.next())) << i;
  }
}

// Each source has its own rows; those of text have windows, and the documents within them where they are told apart.
TEST_P(LoaderOfConversations, ShareBatchesWithText) {
  for (const std::optional<int32_t> separator : {std::optional<int32_t>(), std::optional<int32_t>(37)}) {
    const data::ScheduleOptions options{
        .stages = {{.batches = 4, .batch_size = 8, .block_size = kChatLength, .mix = {{0, 1.0}, {1, 1.0}}},
                   {.batches = 2, .batch_size = 8, .block_size = kChatLength, .mix = {{1, 1.0}}}},
        .seed = 3,
        .document_separator = separator};
    DataLoader loader({some_chats(), some_text(2000)}, config(), options, device());
    int64_t of_text = 0, of_chats = 0;
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t ahead = loader.learned_ahead(1);
      const Batch batch = loader.next();
      EXPECT_EQ((batch.targets >= 0).sum().item<int64_t>(), ahead);
      const at::Tensor documents =
          separator ? ops::document_starts(batch.inputs, *separator) : at::zeros_like(batch.starts);
      for (int64_t row = 0; row < 8; ++row) {
        const bool is_text = (batch.targets[row] >= 0).all().item<bool>();
        ++(is_text ? of_text : of_chats);
        EXPECT_TRUE(!is_text || at::equal(batch.starts[row], documents[row]));
      }
    }
    EXPECT_EQ(of_text + of_chats, 32);
    EXPECT_GT(of_text, 5);
    EXPECT_GT(of_chats, 5);
    EXPECT_FALSE(loader.next_shape().has_starts) << "the second stage is text alone";
    EXPECT_EQ(loader.learned_ahead(1), loader.tokens_ahead(1));
    EXPECT_FALSE(loader.next().starts.defined());
  }
}

TEST_P(LoaderOfConversations, WithoutPackingARowIsOneAndNeedsNoMask) {
  DataConfig unpacked = config();
  unpacked.packing = false;
  DataLoader loader(some_chats(), unpacked, 5, kChatLength, 5, device());
  EXPECT_EQ(loader.samples_per_epoch(), 60);
  const int64_t ahead = loader.learned_ahead(1);
  const Batch batch = loader.next();
  EXPECT_FALSE(batch.starts.defined());
  EXPECT_EQ((batch.targets >= 0).sum().item<int64_t>(), ahead);
  EXPECT_EQ((batch.targets.select(1, 0)).max().item<int64_t>(), -1) << "a question comes first";
}

constexpr LoaderWay kLoaderWays[] = {{"resident", Resident::on, 0},
                                     {"inline", Resident::off, 0},
                                     {"workers", Resident::off, 3}};
INSTANTIATE_TEST_SUITE_P(Ways, LoaderOfConversations,
                         testing::Combine(testing::ValuesIn(kLoaderWays), testing::ValuesIn(kDevices)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) + "_" + std::get<1>(test.param).name;
                         });

TEST(LoaderOfConversationsOnCpu, SaysWhereNothingIsLearned) {
  test::MarkedIds ids = test::conversations({9, 9}, kChatVocab);
  for (uint8_t& mark : ids.marks) mark &= static_cast<uint8_t>(~data::TokenMark::kLearned);
  EXPECT_ERROR(DataLoader(ids.tokens(kChatVocab), {}, 2, kChatLength, 1, at::kCPU), ExitCode::data, "nothing to learn");
}

class SplitOfConversations : public DeviceTest {};

TEST_P(SplitOfConversations, HasItsRowsInAFixedOrder) {
  const data::Tokens chats = some_chats();
  const SplitWindows windows(chats, kChatLength, GetParam().device);
  const data::PackedRows rows(chats, kChatLength, true, 0);
  ASSERT_EQ(windows.size(), rows.size());
  EXPECT_EQ(windows.rest(), 0);
  EXPECT_EQ(windows.targets(), rows.learned());
  const Batch batch = windows.batch({3, 1});
  for (const int64_t i : {0, 1}) {
    const int64_t window = i == 0 ? 3 : 1;
    const at::Tensor counted = batch.targets[i].masked_select(batch.targets[i] >= 0).cpu();
    ASSERT_EQ(counted.numel(), windows.targets_in(window));
    const data::Tokens learned = windows.targets_of(window);
    ASSERT_EQ(learned.size(), counted.numel());
    for (int64_t t = 0; t < counted.numel(); ++t) EXPECT_EQ(learned[t], counted[t].item<int64_t>());
  }
  EXPECT_EQ(batch.starts[0].max().item<int64_t>() > 0, rows.row(3).size() > 1);
  EXPECT_FALSE(SplitWindows(chats, kChatLength, GetParam().device, /*packs=*/false).batch({0}).starts.defined());
}

INSTANTIATE_ON_DEVICES(SplitOfConversations);

}  // namespace
}  // namespace gpt::batches
