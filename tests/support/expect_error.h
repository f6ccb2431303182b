// EXPECT_ERROR(expression, ExitCode::data, "part of its text"): the expression throws gpt::Error, in one line.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "gpt/core/error.h"

#define EXPECT_ERROR(expression, expected_code, part)                                                       \
  try {                                                                                                     \
    (void)(expression);                                                                                     \
    ADD_FAILURE() << #expression << " did not throw; expected an error with: " << (part);                   \
  } catch (const ::gpt::Error& error) {                                                                     \
    EXPECT_EQ(error.code(), expected_code) << error.what();                                                 \
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos)                                      \
        << "error: " << error.what() << "\nlacks: " << (part);                                              \
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "not one line: " << error.what(); \
  }
