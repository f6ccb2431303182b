// The time of what is sent, against the formulas of the alpha-beta model.
#include "gpt/plan/network.h"

#include <gtest/gtest.h>

#include <utility>

#include "gpt/device/cards.h"

namespace gpt::plan {
namespace {

constexpr double kLatency = 3e-6, kRate = 2e9, kTensor = 48e6;

Network one_machine(int64_t of_machine) { return {.of_machine = of_machine, .within = {kLatency, kRate}}; }

// The ring of a gather has a message of each of the others after the other; of an exchange eight are on their way at once.
TEST(TimeOfASum, IsTwiceTheOthersPartsAndTheirMessages) {
  const Network network = one_machine(12);
  for (const auto& [n, rounds] : {std::pair{1.0, 0.0}, {2.0, 1.0}, {3.0, 1.0}, {9.0, 1.0}, {10.0, 2.0}}) {
    const Members members{static_cast<int64_t>(n), 12};
    const double bytes = (n - 1) / n * kTensor / kRate;
    EXPECT_DOUBLE_EQ(time_of_exchange(kTensor, members, network).wires, rounds * kLatency + bytes) << n;
    EXPECT_DOUBLE_EQ(time_of_gather(kTensor, members, network).wires, (n - 1) * kLatency + bytes) << n;
    EXPECT_DOUBLE_EQ(time_of_sum(kTensor, members, network).wires, (rounds + n - 1) * kLatency + 2 * bytes) << n;
    EXPECT_EQ(time_of_sum(kTensor, members, network).cores, 0);
  }
}

// Four machines with eight processes each, whose link is as slow as that of one process.
class FourMachines : public testing::Test {
 protected:
  static constexpr double kBetween = 1e9, kFar = 20e-6;
  const Network network_{.of_machine = 8, .within = {kLatency, 100e9}, .between = {kFar, kBetween}};
  const Members members_{32, 8};
};

// 24 processes are elsewhere: each of the eight sends a 32nd of the tensor to each of them.
TEST_F(FourMachines, ExchangeWhatIsForProcessesElsewhere) {
  EXPECT_DOUBLE_EQ(time_of_exchange(kTensor, members_, network_).wires,
                   kLatency + 3 * kFar + 8 * 24.0 / 32 * kTensor / kBetween);
}

// A ring crosses three links on its way, and brings three quarters of the tensor into each machine, once.
TEST_F(FourMachines, GatherIntoEachMachineOnce) {
  EXPECT_DOUBLE_EQ(time_of_gather(kTensor, members_, network_).wires,
                   28 * kLatency + 3 * kFar + 3.0 / 4 * kTensor / kBetween);
}

// Eight groups of four processes have one process each on each machine, and all groups use its link.
TEST_F(FourMachines, GroupsShareTheLinkOfAMachine) {
  const Members group{4, 1};
  EXPECT_DOUBLE_EQ(time_of_exchange(kTensor, group, network_).wires, kFar + 8 * 3.0 / 4 * kTensor / kBetween);
  EXPECT_DOUBLE_EQ(time_of_gather(kTensor, group, network_).wires, 3 * kFar + 8 * 3.0 / 4 * kTensor / kBetween);
}

// Where the links within a machine are slower than what enters it, they count instead.
TEST_F(FourMachines, TheSlowerOfTwoLinksCounts) {
  Network network = network_;
  network.within.bytes_per_second = kBetween / 100;
  EXPECT_DOUBLE_EQ(time_of_gather(kTensor, members_, network).wires,
                   28 * kLatency + 3 * kFar + 31.0 / 32 * kTensor / (kBetween / 100));
}

TEST(JoinCpus, SendingTakesTheCoresWhateverTheLinkIs) {
  Network network = join_cpus({kLatency, kRate}, 1);
  const Members members{2, 1};
  const SendingTime alone = time_of_sum(kTensor, members, network);
  EXPECT_DOUBLE_EQ(alone.cores, 2 * kLatency + kTensor / kRate);
  EXPECT_EQ(alone.wires, 0);
  network.between = link_between(/*latency=*/1e-4, /*bits_per_second=*/1e9);
  EXPECT_DOUBLE_EQ(time_of_sum(kTensor, members, network).cores, alone.cores);
  // A way is used three quarters of the time, because both of two connections may happen to send the same way.
  EXPECT_DOUBLE_EQ(time_of_sum(kTensor, members, network).wires, 2e-4 + kTensor / (0.75 * 0.95 * 1e9 / 8));
  EXPECT_DOUBLE_EQ(time_of_gather(kTensor, {3, 1}, network).wires,
                   2e-4 + 2.0 / 3 * kTensor / (15.0 / 16 * 0.95 * 1e9 / 8));
}

TEST(JoinCards, IsAShareOfTheDataSheet) {
  const Network network = join_cards(device::find_card("H100 SXM")->describe(), 8);
  EXPECT_DOUBLE_EQ(network.within.bytes_per_second, 0.6 * 450e9);
  EXPECT_EQ(network.source, "computed, not measured: 60 % of the 450 GB/s of NVLink 4");
  EXPECT_LT(network.within.latency, join_cards(device::find_card("RTX 4090")->describe(), 8).within.latency);
}

}  // namespace
}  // namespace gpt::plan
