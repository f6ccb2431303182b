// When parts of a step are recorded and replayed; the graphs are stand-ins.
#include "gpt/run/recorder.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "support/captured_log.h"

namespace gpt::run {
namespace {

using Part = Recorder::Part;

struct Calls {
  int work = 0;                     // how often the work ran on the spot
  int beside_graphs = 0;            // how often it did in the memory of graphs
  std::vector<std::string> graphs;  // what they did
  std::string failure;              // the error of the next recording
};

class NotedGraph : public device::Graph {
 public:
  explicit NotedGraph(Calls& calls) : calls_(calls) {}
  void record(const std::function<void()>& work) override {
    work();
    --calls_.work;  // a recording runs nothing
    TORCH_CHECK(calls_.failure.empty(), calls_.failure);
    calls_.graphs.push_back("record");
  }
  void replay() override { calls_.graphs.push_back("replay"); }

 private:
  Calls& calls_;
};

class NotedGraphs : public device::Graphs {
 public:
  explicit NotedGraphs(Calls& calls) : calls_(calls) {}
  std::unique_ptr<device::Graph> make() override { return std::make_unique<NotedGraph>(calls_); }
  void run(const std::function<void()>& work) override {
    ++calls_.beside_graphs;
    work();
  }

 private:
  Calls& calls_;
};

class RecorderTest : public testing::Test {
 protected:
  void run(const Recorder::Key& key, int times = 1) {
    for (int i = 0; i < times; ++i) recorder.run(key, [this] { ++calls.work; });
  }

  Calls calls;
  Recorder recorder{std::make_unique<NotedGraphs>(calls)};
};

TEST_F(RecorderTest, RecordsWhatHasRunAFewTimes) {
  run({Part::update}, Recorder::kRunsBefore);
  EXPECT_EQ(calls.work, Recorder::kRunsBefore);
  EXPECT_EQ(calls.beside_graphs, Recorder::kRunsBefore);
  EXPECT_TRUE(calls.graphs.empty());
  test::CapturedLog log;
  run({Part::update}, 2);
  EXPECT_NE(log.text().find("Recording the step as CUDA graphs"), std::string::npos);
  EXPECT_EQ(calls.work, Recorder::kRunsBefore);
  EXPECT_EQ(calls.graphs, (std::vector<std::string>{"record", "replay", "replay"}));
}

TEST_F(RecorderTest, EachPartAndShapeIsRecordedApart) {
  run({Part::first_micro_batch, 4, 16}, Recorder::kRunsBefore + 1);
  calls = {};
  run({Part::first_micro_batch, 3, 16});
  run({Part::first_micro_batch, 4, 8});
  run({Part::later_micro_batch, 4, 16});
  EXPECT_EQ(calls.work, 3);
  EXPECT_EQ(calls.beside_graphs, 3);
  run({Part::first_micro_batch, 4, 16});
  EXPECT_EQ(calls.work, 3);
  EXPECT_EQ(calls.graphs, std::vector<std::string>{"replay"});
}

TEST_F(RecorderTest, WhatCannotBeRecordedRunsOnWithoutGraphs) {
  run({Part::update}, Recorder::kRunsBefore + 1);
  calls = {};
  calls.failure = "operation not permitted when stream is capturing";
  test::CapturedLog log;
  run({Part::first_micro_batch}, Recorder::kRunsBefore + 1);
  const std::string said = log.text();
  EXPECT_NE(said.find("warning: Failed to record the step as CUDA graphs: operation not permitted"), std::string::npos)
      << said;
  EXPECT_EQ(calls.work, Recorder::kRunsBefore + 1);
  calls.failure.clear();
  run({Part::update}, 2);
  run({Part::first_micro_batch}, 2);
  EXPECT_EQ(calls.work, Recorder::kRunsBefore + 5);
  EXPECT_EQ(calls.beside_graphs, Recorder::kRunsBefore) << "without graphs their memory is not used any more";
  EXPECT_TRUE(calls.graphs.empty());
}

TEST_F(RecorderTest, AnErrorOfTheWorkItselfIsNotHidden) {
  EXPECT_THROW(recorder.run({Part::update}, [] { throw std::runtime_error("the data changed"); }), std::runtime_error);
}

TEST(Recorder, WithoutGraphsEveryRunIsEager) {
  Recorder recorder;
  int runs = 0;
  for (int i = 0; i < 6; ++i) recorder.run({Part::update}, [&runs] { ++runs; });
  EXPECT_EQ(runs, 6);
  EXPECT_FALSE(recorder.records());
  EXPECT_FALSE(recorder_for({}, {}, at::kCPU).records());
}

}  // namespace
}  // namespace gpt::run
