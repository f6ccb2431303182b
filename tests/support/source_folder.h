// Where the files are that tests read: the checkout that they were built in or, where the programs were carried elsewhere, what the
// environment variable GPT_SOURCE_DIR says.
#pragma once

#include <cstdlib>
#include <string>

namespace gpt::test {

inline std::string source_folder() {
  const char* elsewhere = std::getenv("GPT_SOURCE_DIR");
  return elsewhere ? elsewhere : GPT_SOURCE_DIR;
}

}  // namespace gpt::test
