#include "gpt/serve/adapters.h"

#include <gtest/gtest.h>

#include <string>

#include "support/expect_error.h"

namespace gpt::serve {
namespace {

TEST(Adapters, HaveTheNameBeforeTheEqualsSignOrThatOfTheirPath) {
  const auto adapters =
      parse_adapters({"mails=/none/lora.safetensors", "/none/a=b/code-lora.safetensors", "x=/none/y=z.safetensors"},
                     "base");
  ASSERT_EQ(adapters.size(), 3);
  EXPECT_EQ(adapters[0].name, "mails");
  EXPECT_EQ(adapters[0].path, "/none/lora.safetensors");
  EXPECT_EQ(adapters[1].name, "code-lora");
  EXPECT_EQ(adapters[2].path, "/none/y=z.safetensors");
}

TEST(Adapters, OfOneNameAreRefused) {
  const auto refused = [](const std::vector<std::string>& written, const std::string& message) {
    EXPECT_ERROR(parse_adapters(written, "base"), ExitCode::config, message);
  };
  refused({"a=/x/1", "a=/x/2"}, "--adapter a=/x/2: there is an adapter \"a\" already; give it another name");
  refused({"/y/base"}, "--adapter /y/base: the model itself is called \"base\"; give the adapter another name");
  refused({"=/x"}, "NAME=PATH is needed");
  refused({"a="}, "NAME=PATH is needed");
}

}  // namespace
}  // namespace gpt::serve
