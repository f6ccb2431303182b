// The samples of some runs, written down: a checkpoint holds a position in such a sequence, so that a build in which a
// sequence is another one resumes no run of the builds before it.
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "gpt/core/hash.h"
#include "gpt/core/seeds.h"
#include "gpt/data/sample_schedule.h"

namespace gpt::data {
namespace {

// Documents of many lengths, which end with id 0. The next numbers of mix64 are noise; between them lie stretches of id 1,
// shorter and shorter, so that how far a window is compressed does not hang on the version of zlib.
Tokens text(int64_t size) {
  std::vector<int32_t> ids(size, 1);
  for (int64_t i = 0; i < size; ++i) {
    const int64_t window = i / 64, noise = 7 * window % 61;
    if (i % 64 < noise) ids[i] = static_cast<int32_t>(2 + mix64(static_cast<uint64_t>(i)) % 60000);
    if (i % (17 + window % 40) == 0) ids[i] = 0;
  }
  return Tokens::from_ids(ids, 65536);
}

ScheduleOptions epochs(int64_t batch_size, int64_t block_size) {
  return {.stages = {{.batch_size = batch_size, .block_size = block_size}}, .seed = 7};
}

ScheduleOptions stages(std::vector<StageBatches> stages) { return {.stages = std::move(stages), .seed = 3}; }

ScheduleOptions mixed_stages() {
  return stages({{.batches = 30, .batch_size = 4, .block_size = 8, .mix = {{0, 1.0}}},
                 {.batches = 20, .batch_size = 4, .block_size = 8, .mix = {{0, 1.0}, {1, 1.0}}},
                 {.batches = 10, .batch_size = 8, .block_size = 4, .mix = {{1, 1.0}, {0, 2.0}}}});
}

// A source is taken up again after another one, in other lengths and in its first one.
ScheduleOptions lengths_there_and_back() {
  return stages({{.batches = 40, .batch_size = 8, .block_size = 4, .mix = {{1, 1.0}}},
                 {.batches = 90, .batch_size = 4, .block_size = 8, .mix = {{0, 3.0}, {1, 1.0}}},
                 {.batches = 15, .batch_size = 8, .block_size = 4, .mix = {{0, 1.0}}},
                 {.batches = 5, .batch_size = 4, .block_size = 8, .mix = {{1, 5.0}, {0, 0.5}}}});
}

ScheduleOptions with(ScheduleOptions options, DataOrder order) {
  options.order = order, options.end_of_text = 0;
  return options;
}

struct Sequence {
  const char* name;
  std::vector<int64_t> sizes;  // sizes of the sources, in tokens
  ScheduleOptions options;
  DataPosition from;
  int64_t batches;
  const char* first;  // batch
  const char* hash;   // the hash of all batches
};

void PrintTo(const Sequence& sequence, std::ostream* out) { *out << sequence.name; }

// "0/5: 0@132 0@4 ...": the position, and source and start of each sample.
std::string describe(const SampleSchedule& schedule, const DataPosition& at) {
  const auto [round, sample] = at;
  std::string line = std::to_string(round) + "/" + std::to_string(sample) + ":";
  for (const auto& [source, starts, rows] : schedule.windows(at)) {
    for (const int64_t start : starts) line += " " + std::to_string(source) + "@" + std::to_string(start);
  }
  return line;
}

class SampleSequences : public testing::TestWithParam<Sequence> {};

TEST_P(SampleSequences, AreTheSameInEveryBuild) {
  const Sequence& expected = GetParam();
  std::vector<Tokens> sources;
  for (const int64_t size : expected.sizes) sources.push_back(text(size));
  const SampleSchedule schedule(sources, expected.options);
  EXPECT_EQ(describe(schedule, expected.from), expected.first);
  std::string all;
  for (int64_t i = 0; i < expected.batches; ++i) all += describe(schedule, schedule.advanced(expected.from, i)) + "\n";
  EXPECT_EQ(hash128(all), expected.hash);
}

const Sequence kSequences[] = {
    {"epochs", {1003}, epochs(5, 8), {}, 90, "0/0: 0@459 0@539 0@123 0@219 0@155", "f6b6c9d67b9dd8c51c3e0d955bbb786c"},
    {"from_within_an_epoch",
     {1003},
     epochs(5, 8),
     {5, 40},
     90,
     "5/40: 0@371 0@595 0@515 0@123 0@963",
     "18a31723f9c9ee5ece41ad965f3bbe3e"},
    {"from_a_late_epoch",
     {1003},
     epochs(5, 8),
     {1'000'000'007, 120},
     90,
     "1000000007/120: 0@620 0@860 0@548 0@780",
     "84c9d41318fe63f14faf984681bfab2a"},
    {"one_sample_an_epoch", {20}, epochs(4, 16), {}, 90, "0/0: 0@3", "fe70d381332ccf77bccffa4475cdb44b"},
    {"shorter_first",
     {3000},
     with(epochs(6, 32), DataOrder::shorter_first),
     {},
     40,
     "0/0: 0@19 0@51 0@2579 0@2611 0@83 0@115",
     "b5cdbf71ec93314ded8fbf9f280185d0"},
    {"simpler_first",
     {1500},
     with(epochs(6, 64), DataOrder::simpler_first),
     {},
     12,
     "0/0: 0@19 0@595 0@1171 0@83 0@1299 0@659",
     "1fd851c9112689742df5f99b1c63cb3b"},
    {"stages",
     {2003, 777},
     mixed_stages(),
     {},
     400,
     "0/0: 0@919 0@1615 0@975 0@567",
     "058e614a18e239f4bd5754763bdc706f"},
    {"from_the_second_stage",
     {2003, 777},
     mixed_stages(),
     {1, 36},
     100,
     "1/36: 0@1295 0@695 0@487 1@102",
     "cd853f07b8d8efe5f43579a6885fb9d2"},
    {"stages_of_changing_lengths",
     {1500, 700},
     lengths_there_and_back(),
     {},
     600,
     "0/0: 1@378 1@302 1@346 1@590 1@634 1@478 1@138 1@342",
     "5d36e98df46d2352324daecc34f70d07"},
    {"stages_shorter_first",
     {2003, 777},
     with(mixed_stages(), DataOrder::shorter_first),
     {},
     100,
     "0/0: 0@127 0@191 0@199 0@319",
     "81d5f9f2afdadf41ffa07597049b80be"},
};

INSTANTIATE_TEST_SUITE_P(Runs, SampleSequences, testing::ValuesIn(kSequences),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gpt::data
