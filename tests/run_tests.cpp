// The main of both test programs. With the name of a folder of tests/ it runs the tests whose sources lie there, and says little: each
// failure in full, which tests took a second of a core or more, and in one line how many passed and why how many were skipped. Without, it is
// GoogleTest's own main.
//
// usage: gpt_tests [FOLDER] [GoogleTest's flags]
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <string>

#include "gpt/core/surroundings.h"

namespace {

std::string running;  // "Suite.Name"

// A crash, or the time-out of CTest, which sends SIGQUIT first, would not say in which test.
void name_running_test(int number) {
  const auto write = [](const std::string& text) { return ::write(STDOUT_FILENO, text.data(), text.size()); };
  (void)(write("[  FAILED  ] ") + write(running) + write(", which a signal ended\n"));
  signal(number, SIG_DFL);
  raise(number);
}

void catch_crashes() {
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGQUIT}) {
    struct sigaction before;
    sigaction(number, nullptr, &before);  // a sanitizer's says more
    if (before.sa_handler == SIG_DFL) signal(number, name_running_test);
  }
}

std::string name_of(const testing::TestInfo& test) { return std::string(test.test_suite_name()) + "." + test.name(); }

class ShortReport : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo& test) override {
    running = name_of(test);
    began_ = std::clock();
  }

  void OnTestPartResult(const testing::TestPartResult& part) override {
    if (part.skipped()) reason_ = part.message();
    if (part.failed()) std::printf("%s:%d: %s\n", part.file_name(), part.line_number(), part.message());
  }

  void OnTestEnd(const testing::TestInfo& test) override {
    const char* const parameter = test.value_param() ? test.value_param() : test.type_param();
    if (test.result()->Skipped()) ++skipped_[reason_];
    if (test.result()->Failed()) {
      std::printf("[  FAILED  ] %s%s%s\n\n", running.c_str(), parameter ? ", where the parameter is " : "",
                  parameter ? parameter : "");
    }
    // The time of all threads, so that it does not depend on what else the machine does.
    const double seconds = static_cast<double>(std::clock() - began_) / CLOCKS_PER_SEC;
    if (seconds >= 1) std::printf("%.1f s of a core: %s\n", seconds, running.c_str());
    std::fflush(stdout);
  }

  void OnTestProgramEnd(const testing::UnitTest& all) override {
    std::printf("%d passed, %d failed, %d skipped\n", all.successful_test_count(), all.failed_test_count(),
                all.skipped_test_count());
    for (const auto& [reason, count] : skipped_) std::printf("skipped %d: %s\n", count, reason.c_str());
  }

 private:
  std::string reason_;
  std::clock_t began_ = 0;
  std::map<std::string, int> skipped_;
};

// A filter of GoogleTest's that takes the tests of a folder; empty where there are none.
std::string filter_of(const std::string& folder) {
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  std::string filter;
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      if (std::filesystem::path(test.file()).parent_path().filename() == folder) filter += name_of(test) + ":";
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  setenv("TORCH_FR_BUFFER_SIZE", "0",
         1);  // as the programs do; what c10d records is not safe for processes that are threads
  gpt::surroundings::remove_openmp_file();
  testing::InitGoogleTest(&argc, argv);
  if (argc == 1) return RUN_ALL_TESTS();
  const std::string filter = filter_of(argv[1]);
  if (filter.empty()) {
    std::fprintf(stderr, "no tests in tests/%s\n", argv[1]);
    return 2;
  }
  if (testing::GTEST_FLAG(filter) == "*")
    testing::GTEST_FLAG(filter) = filter;  // the child of a death test has its own
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new ShortReport);
  catch_crashes();
  return RUN_ALL_TESTS();
}
