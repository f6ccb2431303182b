// Several processes say the same to each other as one says to itself.
#include "gpt/distributed/communicator.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "distributed/local_group.h"
#include "gpt/core/error.h"
#include "support/expect_error.h"

namespace gpt::distributed {
namespace {

// A tensor of its own for each rank, which all know.
at::Tensor of_rank(int64_t rank, int64_t count, at::ScalarType type) {
  if (type == at::kLong) return at::arange(rank, rank + count, at::kLong);
  const at::Tensor i = at::arange(count, at::kDouble);
  const at::Tensor x = at::sin((1 + i) * static_cast<double>(rank + 1)) * at::where(i.remainder(7) == 0, 1e4, 1.0);
  return x.to(type);
}

// In the order that the header promises, in float32 where values have 16 bits.
at::Tensor sum_in_pairs(int64_t size, int64_t count, at::ScalarType type, at::ScalarType wire) {
  std::vector<at::Tensor> parts;
  for (int64_t rank = 0; rank < size; ++rank) {
    const at::Tensor sent = of_rank(rank, count, type).to(wire);
    parts.push_back(c10::elementSize(wire) < 4 ? sent.to(at::kFloat) : sent);
  }
  const at::Tensor all = at::stack(parts);
  add_in_pairs(all);
  return all[0].to(wire).to(type);
}

TEST(Communicator, PairsAreAddedInATree) {
  const at::Tensor parts = at::tensor({1e8f, 1.0f, -1e8f, 1.0f}).view({4, 1});
  add_in_pairs(parts);
  EXPECT_EQ(parts[0].item<float>(), 2.0f);  // (1e8 - 1e8) + (1 + 1); one after the other it would be 1
  const at::Tensor three = at::tensor({1.0f, 2.0f, 4.0f}).view({3, 1});
  add_in_pairs(three);
  EXPECT_EQ(three[0].item<float>(), 7.0f);
}

struct SumCase {
  int64_t size, count;
  at::ScalarType type, wire;
};

class Sums : public testing::TestWithParam<SumCase> {};

TEST_P(Sums, AreAddedInTheOrderOfRanks) {
  const auto [size, count, type, wire] = GetParam();
  const at::Tensor expected = sum_in_pairs(size, count, type, wire);
  test::in_ranks(size, [&](const Group& group) {
    const at::Tensor x = of_rank(group.ranks().rank, count, type);
    group.communicator()->sum(x, wire);
    EXPECT_TRUE(x.equal(expected)) << group.ranks().rank;
  });
}

INSTANTIATE_TEST_SUITE_P(All, Sums,
                         testing::Values(SumCase{2, 1, at::kFloat, at::kFloat}, SumCase{3, 100, at::kFloat, at::kFloat},
                                         SumCase{4, 1003, at::kFloat, at::kFloat},
                                         SumCase{4, 1003, at::kFloat, at::kBFloat16},
                                         SumCase{3, 1003, at::kBFloat16, at::kBFloat16},
                                         SumCase{2, 257, at::kDouble, at::kDouble},
                                         SumCase{4, 9, at::kLong, at::kLong}));

// Longer than what is sent at a time, so that several stretches are under way.
TEST(Communicator, LongSumsAreTheSumsOfTheirStretches) {
  constexpr int64_t kCount = 30'000'001;
  test::in_ranks(2, [&](const Group& group) {
    const int64_t rank = group.ranks().rank;
    const at::Tensor x = at::arange(kCount, at::kFloat).remainder_(1000).add_(rank);
    group.communicator()->sum(x);
    const at::Tensor expected = at::arange(kCount, at::kFloat).remainder_(1000).mul_(2).add_(1);
    EXPECT_TRUE(x.equal(expected));
    // An exchange of half of it, and half of the sum back.
    EXPECT_NEAR(static_cast<double>(group.communicator()->bytes_sent()), 4.0 * kCount, 100);
  });
}

// As those of gradients that are completed one after the other, by processes that come at other times.
TEST(Communicator, SumsAreUnderWayWhileSomethingElseIsDone) {
  constexpr int64_t kSums = 7;
  test::in_ranks(3, [&](const Group& group) {
    const int64_t rank = group.ranks().rank;
    Communicator& ranks = *group.communicator();
    for (int round = 0; round < 3; ++round) {
      std::vector<at::Tensor> begun;
      for (int64_t i = 0; i < kSums; ++i) {
        begun.push_back(at::full({1 + 1000 * i}, static_cast<double>(rank + i), i % 2 == 0 ? at::kFloat : at::kDouble));
        ranks.begin_sum(begun.back(), begun.back().scalar_type());
        if (rank == i % 3) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      }
      ranks.finish();
      for (int64_t i = 0; i < kSums; ++i)
        EXPECT_TRUE((begun[static_cast<size_t>(i)] == static_cast<double>(3 + 3 * i)).all().item<bool>()) << i;
      ranks.finish();  // nothing is under way
    }
    EXPECT_GT(ranks.seconds_waited(), 0);
  });
}

// Each has the sum of its part, and then all have all parts.
TEST(Communicator, PartsAreSummedAndGathered) {
  for (const int64_t count : {int64_t{1}, int64_t{10}, int64_t{256}, int64_t{256 * 7}}) {
    test::in_ranks(3, [&](const Group& group) {
      const int64_t rank = group.ranks().rank;
      const at::Tensor x = of_rank(rank, count, at::kFloat), before = x.clone();
      const at::Tensor sum = sum_in_pairs(3, count, at::kFloat, at::kFloat);
      const auto [begin, end] = part_of(count, rank, 3);
      group.communicator()->begin_sum_of_part(x, at::kFloat, {x.slice(0, begin, end)}, kEach);
      group.communicator()->finish();
      EXPECT_TRUE(x.slice(0, begin, end).equal(sum.slice(0, begin, end)));
      EXPECT_TRUE(x.slice(0, 0, begin).equal(before.slice(0, 0, begin)));
      EXPECT_TRUE(x.slice(0, end).equal(before.slice(0, end)));
      group.communicator()->begin_gather(x, kEach);
      group.communicator()->finish();
      EXPECT_TRUE(x.equal(sum)) << count;
    });
  }
}

// One process has the sum of all, though it travels in several stretches, and then all have it. At the others nothing changes before.
TEST(Communicator, OneProcessMayAddUpAll) {
  for (const int64_t count : {int64_t{1}, int64_t{257}, owned_stretch_bytes(3) / int64_t{sizeof(float)} + 5}) {
    for (int64_t owner = 0; owner < 3; ++owner) {
      test::in_ranks(3, [&](const Group& group) {
        const int64_t rank = group.ranks().rank;
        Communicator& ranks = *group.communicator();
        const at::Tensor x = of_rank(rank, count, at::kFloat), before = x.clone();
        const at::Tensor sum = sum_in_pairs(3, count, at::kFloat, at::kFloat);
        ranks.begin_sum_of_part(x, at::kFloat, {rank == owner ? x : at::Tensor()}, owner);
        ranks.finish();
        EXPECT_TRUE(x.equal(rank == owner ? sum : before));
        const at::Tensor rows = at::zeros({3, count});  // of each process, not added up
        ranks.begin_sum_of_part(before, at::kFloat, {rank == owner ? rows : at::Tensor()}, owner);
        ranks.finish();
        for (int64_t i = 0; i < 3; ++i)
          EXPECT_TRUE(rows[i].equal(rank == owner ? of_rank(i, count, at::kFloat) : at::zeros({count})));
        ranks.begin_gather(x, owner);
        ranks.finish();
        EXPECT_TRUE(x.equal(sum)) << count;
      });
    }
  }
}

// The second has an owner, and travels in several stretches. They are there one after the other, whatever else is begun meanwhile; what is no
// sum waits for them.
TEST(Communicator, GatheringsArriveOneByOne) {
  constexpr int64_t kOwner = 1, kCounts[] = {1000, kStretchBytes / int64_t{sizeof(float)} + 3, 256};
  test::in_ranks(3, [&](const Group& group) {
    const int64_t rank = group.ranks().rank;
    Communicator& ranks = *group.communicator();
    for (const bool asks : {false, true}) {
      std::vector<Gathering> all;
      std::vector<at::Tensor> expected;
      for (int64_t i = 0; i < 3; ++i) {
        expected.push_back(of_rank(i, kCounts[i], at::kFloat));
        const auto [begin, end] = i == kOwner ? Part{0, rank == kOwner ? kCounts[i] : 0} : part_of(kCounts[i], rank, 3);
        all.push_back({at::zeros_like(expected[i]), i == kOwner ? kOwner : kEach});
        all[i].x.slice(0, begin, end).copy_(expected[i].slice(0, begin, end));
      }
      const std::vector<std::function<void()>> waits = ranks.begin_gathers(all);
      ASSERT_EQ(waits.size(), 3);
      if (asks) { EXPECT_TRUE(ranks.is_any(rank == 2)); }
      const at::Tensor sum = at::full({5}, rank, at::kLong);
      ranks.begin_sum(sum, at::kLong);
      for (int64_t i = 0; i < 3; ++i) {
        if (!asks) waits[i]();
        EXPECT_TRUE(all[i].x.equal(expected[i])) << i;
      }
      ranks.finish();
      EXPECT_TRUE(sum.equal(at::full({5}, 3, at::kLong)));
    }
    EXPECT_EQ(alone()->begin_gathers({{at::zeros({1}), kEach}}).size(), 1);
  });
}

// Process r has 3 r + s bytes for process s, some none.
TEST(Communicator, BytesGoFromEachToEach) {
  const auto count = [](int64_t from, int64_t to) { return from == 2 ? int64_t{0} : 3 * from + to; };
  test::in_ranks(3, [&](const Group& group) {
    const int64_t rank = group.ranks().rank;
    std::vector<int64_t> to, from;
    std::vector<at::Tensor> sent, expected;
    for (int64_t other = 0; other < 3; ++other) {
      to.push_back(count(rank, other)), from.push_back(count(other, rank));
      sent.push_back(at::full({to.back()}, 10 * rank + other, at::kByte));
      expected.push_back(at::full({from.back()}, 10 * other + rank, at::kByte));
    }
    const at::Tensor all = at::cat(expected), received = at::zeros_like(all);
    group.communicator()->exchange(received, from, at::cat(sent), to);
    EXPECT_TRUE(received.equal(all)) << rank;
  });
}

// What threads of their own say to each other does not meet what the others say meanwhile.
TEST(Communicator, AnotherOneIsForAnotherThread) {
  test::in_ranks(3, [&](const Group& group) {
    const std::shared_ptr<Communicator> another = group.communicator()->another();
    EXPECT_EQ(another->rank(), group.ranks().rank);
    EXPECT_EQ(another->size(), 3);
    const auto add = [](Communicator& ranks, int64_t value) {
      for (int i = 0; i < 50; ++i) {
        const at::Tensor x = at::full({5}, value, at::kLong);
        ranks.sum(x);
        EXPECT_TRUE(x.equal(at::full({5}, 3 * value, at::kLong)));
      }
    };
    std::thread thread([&] { add(*another, 7); });
    add(*group.communicator(), 1);
    thread.join();
  });
}

TEST(Communicator, PartsCoverAllAndBeginAtBlocks) {
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{257}, int64_t{512}, int64_t{256 * 9}}) {
    int64_t next = 0;
    for (int64_t rank = 0; rank < 4; ++rank) {
      const Part part = part_of(count, rank, 4);
      EXPECT_EQ(part.begin, next);
      EXPECT_TRUE(count % 256 != 0 || part.begin % 256 == 0) << count;
      next = part.end;
    }
    EXPECT_EQ(next, count);
  }
}

TEST(Communicator, AllGetWhatTheFirstHasAndTheLargestOfEach) {
  test::in_ranks(3, [&](const Group& group) {
    const int64_t rank = group.ranks().rank;
    const at::Tensor x = of_rank(rank, 11, at::kHalf);
    group.communicator()->broadcast(x);
    EXPECT_TRUE(x.equal(of_rank(0, 11, at::kHalf)));
    const at::Tensor numbers = at::tensor({rank, -rank, int64_t{5}}, at::kLong);
    group.communicator()->begin_largest(numbers)();
    EXPECT_TRUE(numbers.equal(at::tensor({2, 0, 5}, at::kLong)));
  });
}

// Several on their way at once arrive in their order, of any type, also while a sum is under way.
TEST(Communicator, WhatOneSendsArrivesAtAllOthers) {
  constexpr int64_t kCount = 5, kFrom = 1;
  const auto of_number = [](int64_t number, at::ScalarType type) { return of_rank(number, 1000 + number, type); };
  test::in_ranks(3, [&](const Group& group) {
    const int64_t rank = group.ranks().rank, before = group.communicator()->bytes_sent();
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong}) {
      std::vector<at::Tensor> values;
      std::vector<std::function<void()>> waits;
      for (int64_t i = 0; i < kCount; ++i) {
        values.push_back(rank == kFrom ? of_number(i, type) : at::zeros_like(of_number(i, type)));
        waits.push_back(group.communicator()->begin_broadcast(values.back(), kFrom));
      }
      for (int64_t i = 0; i < kCount; ++i) {
        waits[i]();
        EXPECT_TRUE(values[i].equal(of_number(i, type))) << rank << " " << i;
      }
    }
    const int64_t all = 5 * 1000 + 10;
    EXPECT_EQ(group.communicator()->bytes_sent() - before, rank == kFrom ? all * (4 + 2 + 8) : 0);
  });
}

// Six processes in three stages: what is sent between neighbours goes to the same place in the next stage.
TEST(Mesh, StagesAreAsFarApartAsTheyCanBe) {
  test::in_ranks(6, [](Group& group) {
    group.arrange(1, 3);
    const int64_t rank = group.ranks().rank, stage = rank / 2, place = rank % 2;
    const Mesh& mesh = group.mesh();
    EXPECT_EQ(mesh.all->rank(), rank);
    EXPECT_EQ(mesh.data->size(), 2);
    EXPECT_EQ(mesh.data->rank(), place);
    EXPECT_EQ(mesh.pipeline.stages->size(), 3);
    EXPECT_EQ(mesh.pipeline.stages->rank(), stage);
    EXPECT_EQ(mesh.pipeline.ends->size(), stage == 1 ? 1 : 2);
    const at::Tensor passed = at::full({1}, rank, at::kLong), got = at::full({1}, -1, at::kLong),
                     returned = at::full({1}, 10 + rank, at::kLong), back = at::full({1}, -1, at::kLong);
    const auto sent = mesh.pipeline.after.forward->begin_broadcast(passed, 0),
               received = mesh.pipeline.before.forward->begin_broadcast(got, 0),
               sent_back = mesh.pipeline.before.backward->begin_broadcast(returned, 1),
               received_back = mesh.pipeline.after.backward->begin_broadcast(back, 1);
    for (const auto& wait : {sent, received, sent_back, received_back}) wait();
    EXPECT_EQ(got.item<int64_t>(), stage == 0 ? -1 : rank - 2);
    EXPECT_EQ(back.item<int64_t>(), stage == 2 ? -1 : 10 + rank + 2);
    const at::Tensor sum = at::full({1}, rank, at::kLong);
    mesh.pipeline.stages->sum(sum);
    EXPECT_EQ(sum.item<int64_t>(), 6 + 3 * place);
    if (stage == 1) return;
    const at::Tensor of_ends = at::full({1}, rank, at::kLong);
    mesh.pipeline.ends->sum(of_ends);
    EXPECT_EQ(of_ends.item<int64_t>(), 4 + 2 * place);
  });
}

TEST(Communicator, WordsGoFromEachToAll) {
  test::in_ranks(3, [&](const Group& group) {
    const std::string own = "I am " + std::to_string(group.ranks().rank);
    EXPECT_EQ(group.from_all("names", own), (std::vector<std::string>{"I am 0", "I am 1", "I am 2"}));
    EXPECT_EQ(group.from(1, "one", own), "I am 1");
  });
}

// What the first process has said is there until nobody can ask any more.
TEST(Communicator, TheFirstIsHeardByOneThatComesLate) {
  test::in_ranks(3, [](const Group& group) {
    if (group.ranks().rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_EQ(group.from(0, "word", group.ranks().is_first() ? "hello" : ""), "hello");
  });
}

TEST(Communicator, WhoFailsIsNamedToThoseThatWait) {
  std::vector<std::string> heard(3);
  const auto fail = [&](const Group& group) {
    const int64_t rank = group.ranks().rank;
    group.communicator()->sum(at::zeros({5}));  // all are there
    if (rank == 0) throw Error(ExitCode::data, "its disk burns");
    try {
      group.communicator()->sum(at::zeros({5}));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::peer);
      heard[static_cast<size_t>(rank)] = error.what();
    }
  };
  EXPECT_ERROR(test::in_ranks(3, fail), ExitCode::data, "its disk burns");
  for (const size_t rank : {1u, 2u}) {
    EXPECT_NE(heard[rank].find("rank 0 (PID "), std::string::npos) << heard[rank];
    EXPECT_NE(heard[rank].find("has ended: its disk burns"), std::string::npos) << heard[rank];
  }
}

TEST(Communicator, OneProcessSaysNothing) {
  const auto one = alone();
  const at::Tensor x = at::full({3}, 2.0);
  one->sum(x);
  one->broadcast(x);
  one->begin_largest(at::zeros({3}, at::kLong))();
  EXPECT_TRUE(x.equal(at::full({3}, 2.0)));
  EXPECT_EQ(one->bytes_sent(), 0);
}

TEST(Communicator, OneOfAllAndTheFirstAreHeard) {
  test::in_ranks(3, [](const Group& group) {
    Communicator& ranks = *group.communicator();
    for (int64_t speaker = 0; speaker < 3; ++speaker) {
      EXPECT_TRUE(ranks.is_any(ranks.rank() == speaker)) << speaker;
      EXPECT_EQ(ranks.first_says(ranks.rank() == speaker), speaker == 0) << speaker;
    }
    EXPECT_FALSE(ranks.is_any(false));
  });
  EXPECT_TRUE(alone()->is_any(true));
  EXPECT_FALSE(alone()->first_says(false));
}

}  // namespace
}  // namespace gpt::distributed
