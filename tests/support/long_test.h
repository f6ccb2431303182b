// A test that takes long for what it finds: a release needs it, a change does not.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

namespace gpt::test {

inline bool runs_long_tests() { return std::getenv("GPT_ALL_TESTS") != nullptr; }

}  // namespace gpt::test

#define SKIP_UNLESS_ALL_TESTS() \
  if (!gpt::test::runs_long_tests()) GTEST_SKIP() << "it takes long (scripts/test.sh --all runs it)"
