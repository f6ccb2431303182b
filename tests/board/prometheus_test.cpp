#include "gpt/board/prometheus.h"

#include <gtest/gtest.h>

#include <string>

namespace gpt::board {
namespace {

TEST(Prometheus, HasWhatTheDeviceDoesInBaseUnits) {
  const std::string text = prometheus_text(
      {{.name = "a", .state = "running", .devices = {{.utilization = 0.97, .clock_mhz = 1500, .memory_used_mb = 2}}},
       {.name = "b", .state = "done"}});
  EXPECT_NE(text.find(
                "\n# TYPE gpt_run_gpu_utilization_ratio gauge\ngpt_run_gpu_utilization_ratio{run=\"a\"} 0.97\n# HELP"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("gpt_run_gpu_clock_hertz{run=\"a\"} 1500000000\n"), std::string::npos) << text;
  EXPECT_NE(text.find("gpt_run_device_memory_used_bytes{run=\"a\"} 2000000\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("gpt_run_cores"), std::string::npos);
}

TEST(Prometheus, NumbersSeveralDevices) {
  const std::string text =
      prometheus_text({{.name = "a", .state = "running", .devices = {{.utilization = 0.5}, {}, {.utilization = 1}}}});
  EXPECT_NE(text.find("gpt_run_gpu_utilization_ratio{run=\"a\",device=\"0\"} 0.5\n"
                      "gpt_run_gpu_utilization_ratio{run=\"a\",device=\"2\"} 1\n#"),
            std::string::npos)
      << text;
}

TEST(Prometheus, SaysWhatIsKnownOfEachRun) {
  const std::string text = prometheus_text({{.name = "a", .state = "running", .step = 5, .loss = 1.5, .step_ms = 250},
                                            {.name = "b \"c\"\\", .state = "killed", .step = 7}});
  EXPECT_NE(text.find("# HELP gpt_run_step Updates done.\n# TYPE gpt_run_step gauge\n"
                      "gpt_run_step{run=\"a\"} 5\ngpt_run_step{run=\"b \\\"c\\\"\\\\\"} 7\n"),
            std::string::npos);
  EXPECT_NE(text.find("gpt_run_loss{run=\"a\"} 1.5\n# HELP"), std::string::npos);
  EXPECT_NE(text.find("gpt_run_step_seconds{run=\"a\"} 0.25\n"), std::string::npos);
  EXPECT_EQ(text.find("gpt_run_learning_rate"), std::string::npos);
  EXPECT_NE(text.find("gpt_run_state{run=\"a\",state=\"running\"} 1\n"), std::string::npos);
  EXPECT_NE(text.find("gpt_run_state{run=\"a\",state=\"killed\"} 0\n"), std::string::npos);
  EXPECT_EQ(prometheus_text({}), "");
}

}  // namespace
}  // namespace gpt::board
