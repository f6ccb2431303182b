#include "gpt/data/sample_schedule.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "support/expect_error.h"

namespace gpt::data {
namespace {

Tokens zeros(int64_t size) { return Tokens::from_ids(std::vector<int32_t>(size), 10); }

// (source, start) of every sample, batch after batch from `at` on.
using Sample = std::pair<size_t, int64_t>;
std::vector<Sample> take(const SampleSchedule& schedule, DataPosition at, int64_t batches) {
  std::vector<Sample> samples;
  for (int64_t i = 0; i < batches; ++i) {
    const DataPosition here = schedule.advanced(at, i);
    const size_t before = samples.size();
    for (const auto& [source, starts, rows] : schedule.windows(here)) {
      for (const int64_t start : starts) samples.emplace_back(source, start);
    }
    EXPECT_EQ(samples.size() - before, schedule.batch_size(here));
  }
  return samples;
}

// ---- processes ----

TEST(SampleSchedule, ProcessesShareTheBatchesOfEachUpdate) {
  for (const int64_t processes : {1, 2, 3, 8}) {
    constexpr int64_t kBatches = 25,
                      kOfUpdate = 4;  // the last batch of the epoch has 4 samples, and the last update one batch
    std::vector<int64_t> owners(kBatches, 0);
    for (int64_t rank = 0; rank < processes; ++rank) {
      const SampleSchedule schedule({zeros(1003)}, {.stages = {{.batch_size = 5, .block_size = 8}},
                                                    .seed = 7,
                                                    .dealing = {rank, processes, kOfUpdate}});
      ASSERT_EQ(schedule.batches_left({}), kBatches);
      for (int64_t i = 0; i < 2 * kBatches; ++i) {  // in the second epoch like in the first
        const bool is_own = schedule.is_own(schedule.advanced({}, i));
        EXPECT_EQ(is_own, i % kBatches % kOfUpdate % processes == rank) << i;
        if (i < kBatches && is_own) ++owners[static_cast<size_t>(i)];
      }
    }
    EXPECT_EQ(owners, std::vector<int64_t>(kBatches, 1)) << processes;
  }
}

TEST(SampleSchedule, TokensAreCountedFromTheBeginningOfTheRun) {
  const ScheduleOptions plain{.stages = {{.batch_size = 5, .block_size = 7}}, .seed = 7},
      staged{.stages = {{.batches = 3, .batch_size = 4, .block_size = 7},
                        {.batches = 9, .batch_size = 2, .block_size = 14}},
             .seed = 7};
  for (const ScheduleOptions& options : {plain, staged}) {
    const SampleSchedule schedule({zeros(203)}, options);
    int64_t tokens = 0;
    for (int64_t i = 0; i < 40; ++i) {  // several epochs, or both stages
      const DataPosition at = schedule.advanced({}, i);
      EXPECT_EQ(schedule.tokens_before(at), tokens) << i;
      tokens += schedule.batch_size(at) * schedule.block_size(at);
    }
  }
}

TEST(SampleSchedule, AnyPositionIsReachedWithoutTheOnesBefore) {
  const SampleSchedule schedule({zeros(203)}, {.stages = {{.batch_size = 5, .block_size = 7}}, .seed = 7});
  const DataPosition starts[] = {{}, {2, 10}, {3, 25}};
  for (const DataPosition& start : starts) {
    DataPosition at = start;
    for (int64_t batch = 0; batch < 40; ++batch) {  // 28 samples, so 6 batches, are an epoch
      EXPECT_EQ(schedule.advanced(start, batch), at);
      at = schedule.advanced(at, 1);
    }
    EXPECT_EQ(at.round, start.round + (40 + start.sample / 5) / 6);
  }
}

// ---- stages ----

ScheduleOptions options_of(std::vector<StageBatches> stages) { return {.stages = std::move(stages), .seed = 3}; }

TEST(StageSchedule, WeightsAreExact) {
  const SampleSchedule schedule(
      {zeros(5000), zeros(5000), zeros(5000)},
      options_of({{.batches = 1000, .batch_size = 10, .block_size = 8, .mix = {{0, 1.0}, {2, 2.0}, {1, 1.0}}}}));
  std::map<size_t, int64_t> counts;
  for (const auto& [source, start] : take(schedule, {}, 400)) ++counts[source];
  EXPECT_EQ(counts, (std::map<size_t, int64_t>{{0, 1000}, {1, 1000}, {2, 2000}}));
  counts.clear();  // a tenth of a cycle is near it too
  for (const auto& [source, start] : take(schedule, {}, 10)) ++counts[source];
  EXPECT_NEAR(counts[2], 50, 20);
}

TEST(StageSchedule, EveryFileGivesEachSampleOncePerEpoch) {
  const SampleSchedule schedule(
      {zeros(1003), zeros(207)},
      options_of({{.batches = 10000, .batch_size = 7, .block_size = 8, .mix = {{0, 3.0}, {1, 1.0}}}}));
  std::map<size_t, std::vector<int64_t>> starts;
  for (const auto& [source, start] : take(schedule, {}, 200)) starts[source].push_back(start);
  const std::map<size_t, int64_t> per_epoch = {{0, 124}, {1, 24}};
  for (const auto& [source, count] : per_epoch) {
    for (int64_t epoch = 0; (epoch + 1) * count <= std::ssize(starts[source]); ++epoch) {
      const auto first = starts[source].begin() + epoch * count;
      const std::set<int64_t> distinct(first, first + count);
      EXPECT_EQ(std::ssize(distinct), count) << "source " << source << " epoch " << epoch;
      EXPECT_EQ(*distinct.rbegin() - *distinct.begin(), (count - 1) * 8);
    }
  }
  EXPECT_GT(starts[1].size(), 2u * 24);
}

std::vector<StageBatches> three_stages() {
  return {{.batches = 30, .batch_size = 4, .block_size = 8, .mix = {{0, 1.0}}},
          {.batches = 20, .batch_size = 4, .block_size = 8, .mix = {{0, 1.0}, {1, 1.0}}},
          {.batches = 10, .batch_size = 8, .block_size = 4, .mix = {{1, 1.0}, {0, 2.0}}}};
}

TEST(StageSchedule, AnyPositionIsReachedWithoutTheOnesBefore) {
  const SampleSchedule schedule({zeros(2003), zeros(777)}, options_of(three_stages()));
  const std::vector<Sample> whole = take(schedule, {}, 80);
  DataPosition at;
  size_t done = 0;
  for (int64_t batch = 0; batch < 80; ++batch) {
    EXPECT_EQ(schedule.advanced({}, batch), at);
    const std::vector<Sample> one = take(schedule, at, 1);
    EXPECT_TRUE(std::equal(one.begin(), one.end(), whole.begin() + done));
    done += one.size();
    at = schedule.advanced(at, 1);
  }
  EXPECT_EQ(at, (DataPosition{2, 30 * 8}));  // the last stage goes on beyond its 10 batches
  EXPECT_EQ(schedule.advanced({}, 30), (DataPosition{1, 0}));
  EXPECT_EQ(schedule.block_size({1, 0}), 8);
  EXPECT_EQ(schedule.block_size({2, 0}), 4);
}

TEST(StageSchedule, AFileGoesOnWhereTheStageBeforeLeftIt) {
  const SampleSchedule schedule({zeros(2003), zeros(777)}, options_of(three_stages()));
  std::set<int64_t> seen;  // 120 samples in stage 0 and 40 in stage 1, of the 249 of an epoch
  for (const auto& [source, start] : take(schedule, {}, 50)) {
    if (source != 0) continue;
    EXPECT_TRUE(seen.insert(start).second) << start;
  }
  EXPECT_NEAR(std::ssize(seen), 160, 15);
}

TEST(StageSchedule, AFileGoesOnThroughStagesThatLeaveItOut) {
  const auto stage = [](size_t source, int64_t batches) {
    return StageBatches{.batches = batches, .batch_size = 4, .block_size = 8, .mix = {{source, 1.0}}};
  };
  const SampleSchedule schedule({zeros(2003), zeros(777)},
                                options_of({stage(0, 30), stage(0, 10), stage(1, 5), stage(0, 10)}));
  std::set<int64_t> seen;  // 200 samples of the 249 of an epoch
  for (const auto& [source, start] : take(schedule, {}, 55)) {
    if (source != 0) continue;
    EXPECT_TRUE(seen.insert(start).second) << start;
  }
  EXPECT_EQ(seen.size(), 200u);
}

TEST(StageSchedule, AnotherLengthBeginsWithTheNextEpoch) {
  for (const int64_t batches : {1, 62, 63, 64}) {  // batches of 4 samples; 249 samples are an epoch
    const SampleSchedule schedule({zeros(2003)},
                                  options_of({{.batches = batches, .batch_size = 4, .block_size = 8, .mix = {{0, 1.0}}},
                                              {.batches = 10, .batch_size = 8, .block_size = 4, .mix = {{0, 1.0}}}}));
    const SampleSchedule plain({zeros(2003)}, {.stages = {{.batch_size = 8, .block_size = 4}}, .seed = 3});
    EXPECT_EQ(take(schedule, {1, 0}, 10), take(plain, {batches <= 62 ? 1 : 2, 0}, 10)) << batches;
  }
}

TEST(StageSchedule, EveryCycleAndStageMixesInAnOrderOfItsOwn) {
  const StageBatches stage{.batches = 200, .batch_size = 10, .block_size = 8, .mix = {{0, 1.0}, {1, 1.0}}};
  const SampleSchedule schedule({zeros(5000), zeros(5000)}, options_of({stage, stage}));
  std::set<std::vector<size_t>> orders;
  for (int64_t cycle = 0; cycle < 4; ++cycle) {  // cycles of 1000 samples, two in each stage
    std::vector<size_t> sources;
    for (int64_t sample = cycle * 1000; sample < (cycle + 1) * 1000; sample += 10) {
      const DataPosition at{sample / 2000, sample % 2000};
      for (const auto& [source, starts, rows] : schedule.windows(at))
        sources.insert(sources.end(), {source, starts.size()});
    }
    orders.insert(sources);
  }
  EXPECT_EQ(orders.size(), 4u);
}

TEST(StageSchedule, EveryStageBeginsWithAnUpdate) {
  ScheduleOptions options = options_of(three_stages());
  options.dealing = {1, 2, 3};
  const SampleSchedule schedule({zeros(9003), zeros(9003)}, options);
  for (const int64_t round : {0, 1, 2}) {
    for (int64_t i = 0; i < 7; ++i)
      EXPECT_EQ(schedule.is_own(schedule.advanced({round, 0}, i)), i % 3 == 1) << round << " " << i;
  }
}

// ---- easier samples first ----

std::vector<int64_t> starts_of(const SampleSchedule& schedule, int64_t epoch) {
  std::vector<int64_t> starts;
  for (const auto& [source, start] : take(schedule, {epoch, 0}, schedule.batches_left({epoch, 0})))
    starts.push_back(start);
  return starts;
}

TEST(Order, SimplerFirstIsWhatCompressesBetter) {
  std::mt19937 random(5);
  std::vector<int32_t> ids(64 * 40);
  // Window by window: i different ids, so that later ones are harder to compress; shuffled over the text.
  std::vector<int32_t> difficulty(40);
  for (int i = 0; i < 40; ++i) difficulty[i] = 1 + (i * 17) % 40;
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>(random() % static_cast<unsigned>(difficulty[i / 64]) * 257);
  const Tokens tokens = Tokens::from_ids(ids, 60000);
  ScheduleOptions options{.stages = {{.batch_size = 3, .block_size = 64}}, .seed = 11};
  const SampleSchedule plain({tokens}, options);
  options.order = DataOrder::simpler_first;
  const SampleSchedule simple({tokens}, options);
  std::vector<int64_t> starts = starts_of(simple, 0);
  const auto mean_difficulty = [&](size_t begin, size_t end) {
    double sum = 0;
    for (size_t i = begin; i < end; ++i) sum += difficulty[(starts[i] + 32) / 64];
    return sum / static_cast<double>(end - begin);
  };
  EXPECT_LT(mean_difficulty(0, 10), 10);
  EXPECT_GT(mean_difficulty(starts.size() - 10, starts.size()), 30);
  const auto compressed_size = [&](int64_t start) {
    const Tokens window = tokens.slice(start, start + 64);
    Bytef packed[1024];
    uLongf size = sizeof packed;
    EXPECT_EQ(compress2(packed, &size, static_cast<const Bytef*>(window.data()), window.bytes(), Z_BEST_SPEED), Z_OK);
    return size;
  };
  for (size_t i = 1; i < starts.size(); ++i) EXPECT_LE(compressed_size(starts[i - 1]), compressed_size(starts[i])) << i;
  EXPECT_EQ(starts_of(simple, 1), starts_of(plain, 1));  // random afterwards
  std::vector<int64_t> sorted = starts, expected = starts_of(plain, 0);
  std::sort(sorted.begin(), sorted.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(sorted, expected);  // and each sample once
}

TEST(Order, ShorterDocumentsFirst) {
  const int32_t end_of_text = 0;
  std::vector<int32_t> ids;
  std::vector<int64_t> length_at;  // the length of the document at each position
  for (const int64_t length : {50, 7, 300, 20, 100, 9}) {
    ids.insert(ids.end(), length - 1, 1);
    ids.push_back(end_of_text);
    length_at.insert(length_at.end(), length, length);
  }
  ScheduleOptions options{.stages = {{.batch_size = 4, .block_size = 8}}, .seed = 2};
  options.order = DataOrder::shorter_first, options.end_of_text = end_of_text;
  const std::vector<int64_t> starts = starts_of(SampleSchedule({Tokens::from_ids(ids, 2)}, options), 0);
  for (size_t i = 1; i < starts.size(); ++i) EXPECT_LE(length_at[starts[i - 1]], length_at[starts[i]]);
  EXPECT_LT(length_at[starts.front()], 300);
  EXPECT_EQ(length_at[starts.back()], 300);
  options.end_of_text.reset();
  EXPECT_ERROR(SampleSchedule({Tokens::from_ids(ids, 2)}, options), ExitCode::config,
               "data.order: shorter_first needs documents");
}

// The text is one that changes, so that the order tells when it was read.
TEST(Order, TheTextIsReadOnceAndOnlyForTheBatchesOfTheFirstEpoch) {
  const auto ids = std::make_shared<std::vector<uint16_t>>(64 * 20);
  const Tokens tokens(ids, ids->data(), std::ssize(*ids), 2);
  const ScheduleOptions options{.stages = {{.batch_size = 3, .block_size = 64}},
                                .seed = 11,
                                .order = DataOrder::simpler_first};
  std::mt19937 random(5);
  const auto make_difficult = [&](size_t half) {
    for (size_t i = 0; i < ids->size(); ++i) (*ids)[i] = i / (64 * 10) == half ? random() : 0;
  };
  const auto mean_start = [](const SampleSchedule& schedule) {
    const std::vector<int64_t> starts = starts_of(schedule, 0);
    return std::accumulate(starts.begin(), starts.begin() + 9, 0.0) / 9;
  };
  make_difficult(0);
  const SampleSchedule schedule({tokens}, options);
  (void)starts_of(schedule, 1);
  make_difficult(1);
  EXPECT_LT(mean_start(schedule), 64 * 9) << "it was read before";
  make_difficult(0);
  EXPECT_LT(mean_start(schedule), 64 * 9) << "it was read again";
}

TEST(Order, AlsoInTheFirstEpochOfAStage) {
  std::vector<int32_t> ids(3000, 1);
  for (size_t i = 0; i < ids.size(); i += i < 1500 ? 100 : 10) ids[i] = 0;
  ScheduleOptions options = options_of({{.batches = 9, .batch_size = 8, .block_size = 8, .mix = {{0, 1.0}}}});
  options.order = DataOrder::shorter_first, options.end_of_text = 0;
  const SampleSchedule schedule({Tokens::from_ids(ids, 2)}, options);
  for (const auto& [source, start] : take(schedule, {}, 15)) EXPECT_GT(start, 1400);
}

}  // namespace
}  // namespace gpt::data
