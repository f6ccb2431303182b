#include "gpt/control/message.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpt/core/error.h"
#include "support/expect_error.h"

namespace gpt::control {
namespace {

TEST(ControlMessage, EveryRequestReadsBackFromItsLine) {
  const std::vector<Request> all = {{Verb::pause},        {Verb::go_on},     {Verb::save},      {Verb::validate},
                                    {Verb::sample},       {Verb::stop},      {Verb::rate, 0.1}, {Verb::steps, 1},
                                    {Verb::longer, 1e12}, {Verb::shorter, 7}};
  for (const Request& request : all) {
    const std::string line = to_line(request);
    EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
    EXPECT_LE(line.size(), kMostBytes);
    EXPECT_EQ(read_request(line), request) << line;
    EXPECT_NE(verbs_for_people().find("  " + name_of(request.verb)), std::string::npos);
  }
  EXPECT_EQ(to_line(Request{Verb::rate, 0.1}), "{\"verb\":\"rate\",\"value\":0.1}\n");
}

TEST(ControlMessage, WordsOfAPersonAreARequest) {
  EXPECT_EQ(request_of("continue", {}), Request{Verb::go_on});
  EXPECT_EQ(request_of("rate", "0.5"), (Request{Verb::rate, 0.5}));
  EXPECT_EQ(request_of("steps", "2000"), (Request{Verb::steps, 2000}));
}

TEST(ControlMessage, WhatIsWrongIsSaid) {
  EXPECT_ERROR(request_of("puase", {}), ExitCode::config, "cannot be told 'puase'; did you mean 'pause'?");
  EXPECT_ERROR(request_of("dance\nnow", {}), ExitCode::config,
               "say pause, continue, save, validate, sample, stop, rate");
  EXPECT_ERROR(request_of("pause", "3"), ExitCode::config, "pause takes no value");
  EXPECT_ERROR(request_of("rate", {}), ExitCode::config, "rate needs a number: rate FACTOR");
  EXPECT_ERROR(request_of("rate", "0.5x"), ExitCode::config, "rate needs a number, got '0.5x'");
  EXPECT_ERROR(request_of("rate", "0"), ExitCode::config, "rate needs a number from 1e-06 to 100, got 0");
  EXPECT_ERROR(request_of("rate", "nan"), ExitCode::config, "rate needs a number from 1e-06 to 100");
  EXPECT_ERROR(request_of("rate", "inf"), ExitCode::config, "rate needs a number from 1e-06 to 100");
  EXPECT_ERROR(request_of("steps", "1.5"), ExitCode::config, "steps needs a whole number from 1 to");
  EXPECT_ERROR(request_of("longer", "1e13"), ExitCode::config, "longer needs a whole number from 1 to");
  for (const char* line :
       {"", "pause", "[]", "3", "{\"verb\": 3}", "{\"value\": 3}", "{\"verb\": \"pause\"", "\xff\xfe"})
    EXPECT_ERROR(read_request(line), ExitCode::config, "a request is a line such as");
  EXPECT_ERROR(read_request(R"({"verb": "pause", "value": 1})"), ExitCode::config, "pause takes no value");
  EXPECT_ERROR(read_request(R"({"verb": "rate", "value": "1"})"), ExitCode::config, "rate needs a number");
  EXPECT_ERROR(read_request(R"({"verb": "rate", "value": -1})"), ExitCode::config, "rate needs a number from");
  EXPECT_ERROR(read_request(R"({"verb": "pause", "why": 1})"), ExitCode::config, "a request has no 'why'");
}

TEST(ControlMessage, AnAnswerReadsBack) {
  const auto answer = read_answer(to_line(Answer{true, "saved \"x\"\n\xff"}));
  ASSERT_TRUE(answer);
  EXPECT_TRUE(answer->is_done);
  EXPECT_EQ(answer->said, "saved \"x\"\n\xef\xbf\xbd");
  EXPECT_FALSE(read_answer(""));
  EXPECT_FALSE(read_answer(R"({"done": 1, "said": "x"})"));
  EXPECT_FALSE(read_answer(R"({"done": true})"));
}

}  // namespace
}  // namespace gpt::control
