#include "gpt/report/tensorboard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <protozero/pbf_reader.hpp>
#include <string>
#include <vector>

#include "core/scratch_folder.h"
#include "gpt/core/file.h"
#include "support/expect_error.h"

namespace gpt::report {
namespace {

// RFC 3720, B.4, and the check value of the catalogue of CRCs.
TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  std::string rising, falling;
  for (char i = 0; i < 32; ++i) rising += i;
  falling.assign(rising.rbegin(), rising.rend());
  EXPECT_EQ(crc32c(rising), 0x46DD794Eu);
  EXPECT_EQ(crc32c(falling), 0x113FDB5Cu);
}

// The first record that TensorFlow writes to an event file, but for its time, which is 0 here.
TEST(TfRecord, KnownBytes) {
  const std::string event = std::string("\x09", 1) + std::string(8, '\0') + "\x1a\x0d" + "brain.Event:2";
  const std::string record = tf_record(event);
  ASSERT_EQ(record.size(), 8 + 4 + event.size() + 4);
  EXPECT_EQ(record.substr(0, 12), std::string("\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22", 12));
  EXPECT_EQ(record.substr(12, event.size()), event);
}

struct Event {
  int64_t step = 0;
  double time = 0;
  std::string version;
  bool starts_session = false;
  std::map<std::string, float> scalars;
  std::map<std::string, std::string> texts;
};

std::string text_of(protozero::pbf_reader tensor) {
  std::string text;
  while (tensor.next()) {
    if (tensor.tag() == 8) {
      text = tensor.get_bytes();
    } else {
      tensor.skip();
    }
  }
  return text;
}

void read_value(protozero::pbf_reader value, Event& event) {
  std::string tag;
  while (value.next()) {
    switch (value.tag()) {
      case 1: tag = value.get_string(); break;
      case 2: event.scalars[tag] = value.get_float(); break;
      case 8: event.texts[tag] = text_of(value.get_message()); break;
      default: value.skip();
    }
  }
}

Event read_event(const std::string& bytes) {
  Event event;
  protozero::pbf_reader reader(bytes);
  while (reader.next()) {
    switch (reader.tag()) {
      case 1: event.time = reader.get_double(); break;
      case 2: event.step = reader.get_int64(); break;
      case 3: event.version = reader.get_string(); break;
      case 5: {
        protozero::pbf_reader summary = reader.get_message();
        while (summary.next(1)) read_value(summary.get_message(), event);
        break;
      }
      case 7: {
        protozero::pbf_reader log = reader.get_message();
        event.starts_session = log.next(1) && log.get_enum() == 1;
        break;
      }
      default: reader.skip();
    }
  }
  return event;
}

// The events in all files in the folder, in the order of their names; what they hold has to be whole records.
std::vector<Event> events_in(const std::string& folder) {
  std::vector<Event> events;
  for (const std::string& name : names_in(folder)) {
    EXPECT_TRUE(name.starts_with("events.out.tfevents.")) << name;
    const std::string bytes = read_file(folder + "/" + name, ExitCode::disk);
    for (size_t at = 0; at < bytes.size();) {
      uint64_t size = 0;
      std::memcpy(&size, bytes.data() + at, sizeof size);
      const std::string event = bytes.substr(at + 12, size);
      EXPECT_EQ(bytes.substr(at, size + 16), tf_record(event));
      events.push_back(read_event(event));
      at += size + 16;
    }
  }
  return events;
}

TEST(TensorBoardEvents, WritesScalarsAndSamples) {
  ScratchFolder folder;
  TensorBoardEvents listener(folder / "run/tensorboard");
  listener.begin({.first_step = 0,
                  .total_steps = 10,
                  .total_epochs = 1,
                  .parameters = 1,
                  .folder = "",
                  .configuration = "",
                  .machine = ""});
  listener.step({.step = 5,
                 .loss = 2.5,
                 .learning_rate = 0.25,
                 .grad_norm = std::nan(""),
                 .step_ms = 1,
                 .tokens_per_second = 1024,
                 .mfu = 0.5,
                 .peak_memory_mb = 300});
  listener.evaluation({.step = 5, .loss = 2.75, .bits_per_byte = 1.5, .is_best = true, .seconds = 1});
  listener.evaluation({.step = 6, .loss = 2.625, .bits_per_byte = {}, .is_best = true, .seconds = 1});
  listener.task({.step = 6, .task = "piqa", .metrics = {{"acc", 0.5, 0.25}, {"acc_norm", 0.75}}});
  listener.sample({6, "two\n<b>lines</b>\xff"});
  const auto events = events_in(folder / "run/tensorboard");  // while the listener still has its file open
  ASSERT_EQ(events.size(), 8);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_GT(events[0].time, 1.7e9);
  EXPECT_TRUE(events[1].starts_session);
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[2].step, 5);
  EXPECT_EQ(events[2].scalars.size(), 6);
  EXPECT_EQ(events[2].scalars.at("loss/train"), 2.5f);
  EXPECT_EQ(events[2].scalars.at("learning_rate"), 0.25f);
  EXPECT_TRUE(std::isnan(events[2].scalars.at("grad_norm")));
  EXPECT_EQ(events[2].scalars.at("tokens_per_second"), 1024.0f);
  EXPECT_EQ(events[2].scalars.at("memory_mb"), 300.0f);
  EXPECT_EQ(events[2].scalars.at("mfu"), 0.5f);
  EXPECT_EQ(events[3].scalars, (std::map<std::string, float>{{"loss/validation", 2.75f}, {"bits_per_byte", 1.5f}}));
  EXPECT_EQ(events[4].scalars, (std::map<std::string, float>{{"loss/validation", 2.625f}}));
  EXPECT_EQ(events[5].scalars, (std::map<std::string, float>{{"piqa/acc", 0.5f}}));
  EXPECT_EQ(events[6].scalars, (std::map<std::string, float>{{"piqa/acc_norm", 0.75f}}));
  EXPECT_EQ(events[7].step, 6);
  EXPECT_EQ(events[7].texts.at("sample"), "    two\n    <b>lines</b>\xEF\xBF\xBD");
}

TEST(TensorBoardEvents, EveryStepHasItsLossAtItsOwnTime) {
  ScratchFolder folder;
  TensorBoardEvents listener(folder.path());
  listener.begin({});
  listener.losses({{.step = 3, .loss = 2.5, .learning_rate = 0.25, .grad_norm = 0.5, .at = {1e9, 0}},
                   {.step = 4, .loss = 2.25, .learning_rate = 0.125, .grad_norm = 0.75, .at = {1e9 + 2, 0}}});
  const auto events = events_in(folder.path());
  ASSERT_EQ(events.size(), 4);
  EXPECT_EQ(events[2].scalars,
            (std::map<std::string, float>{{"loss/train", 2.5f}, {"learning_rate", 0.25f}, {"grad_norm", 0.5f}}));
  EXPECT_EQ(events[3].step, 4);
  EXPECT_EQ(events[3].time, 1e9 + 2);
}

TEST(TensorBoardEvents, LayersHaveTheirNorms) {
  ScratchFolder folder;
  TensorBoardEvents listener(folder.path());
  listener.begin({});
  listener.step(
      {.step = 3, .mfu = {}, .norms = LayerNorms{.gradient = {1, NAN, 3}, .weight = {4, 5, 6}, .update = {7, 8, 9}}});
  const auto events = events_in(folder.path());
  ASSERT_EQ(events.size(), 4);
  EXPECT_EQ(events[3].step, 3);
  EXPECT_EQ(events[3].scalars.size(), 9);
  EXPECT_EQ(events[3].scalars.at("gradient_norm/embeddings"), 1);
  EXPECT_TRUE(std::isnan(events[3].scalars.at("gradient_norm/h.0")));
  EXPECT_EQ(events[3].scalars.at("weight_norm/h.0"), 5);
  EXPECT_EQ(events[3].scalars.at("update_norm/final"), 9);
}

TEST(TensorBoardEvents, AResumedRunDropsTheStepsAfterItsFirst) {
  ScratchFolder folder;
  TensorBoardEvents listener(folder.path());
  listener.begin({.first_step = 700,
                  .total_steps = 1000,
                  .total_epochs = 1,
                  .parameters = 1,
                  .folder = "",
                  .configuration = "",
                  .machine = ""});
  const auto events = events_in(folder.path());
  ASSERT_EQ(events.size(), 2);
  EXPECT_TRUE(events[1].starts_session);
  EXPECT_EQ(events[1].step, 701);
}

// TensorBoard's data server would show them until their tags have other values.
TEST(TensorBoardEvents, ALaterStartCutsOffTheStepsThatAreLost) {
  ScratchFolder folder;
  RunRecord run;
  run.configuration = "model: {}", run.settings = {{"seed", "1"}};
  {
    TensorBoardEvents listener(folder.path());
    listener.begin(run);
    for (const int64_t step : {700, 701}) listener.evaluation({.step = step, .loss = 2, .bits_per_byte = {}});
    listener.sample({701, "lost"});
  }
  const std::string first = names_in(folder.path()).front();
  const size_t before = read_file(folder / first, ExitCode::disk).size();
  std::ofstream(folder / first, std::ios::app | std::ios::binary) << "a kill has cut";
  folder.file("notes.txt", "not one of ours");
  run = {};
  run.first_step = 700;
  TensorBoardEvents(folder.path()).begin(run);
  EXPECT_LT(read_file(folder / first, ExitCode::disk).size(), before);
  std::filesystem::remove(folder / "notes.txt");
  std::vector<int64_t> steps;
  for (const Event& event : events_in(folder.path())) steps.push_back(event.step);
  std::sort(steps.begin(), steps.end());
  EXPECT_EQ(steps, (std::vector<int64_t>{0, 0, 0, 1, 1, 700, 701}))
      << "versions and settings; the first start and its configuration; an evaluation; the second start";
}

TEST(TensorBoardEvents, AFolderThatCannotBeMadeIsAnError) {
  ScratchFolder folder;
  folder.file("run", "a file");
  TensorBoardEvents listener(folder / "run/tensorboard");
  EXPECT_ERROR(listener.begin({}), ExitCode::disk, "run/tensorboard");
  listener.step({});  // has nowhere to go
}

}  // namespace
}  // namespace gpt::report
