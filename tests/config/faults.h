// What the user reads when a configuration is refused.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "gpt/config/load.h"
#include "gpt/core/error.h"

namespace gpt::config {

template <class Action>
std::string fault_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::config) << error.what();
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return error.what();
  }
  return "no fault";
}

inline std::string yaml_fault(std::string_view yaml) {
  return fault_of([&] {
    Config config;
    validate(config, "c.yaml", read_yaml(yaml, "c.yaml", config));
  });
}

inline Config from_yaml(std::string_view yaml) {
  Config config;
  read_yaml(yaml, "c.yaml", config);
  return config;
}

}  // namespace gpt::config
