// A configuration in YAML, as a file, and as the value of a flag that takes a list.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "expect.h"
#include "gpt/config/load.h"
#include "gpt/config/node.h"

namespace {

using namespace gpt;

Config read(std::string_view yaml, const std::string& origin) {
  Config config;
  const config::Origins origins = config::read_yaml(yaml, origin, config);
  config::validate(config, origin, origins);
  return config;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view yaml(reinterpret_cast<const char*>(data), size);
  fuzz::accept_or_refuse([&] { config::parse_node(yaml, "--data.stages"); }, ExitCode::config);
  Config config;
  if (!fuzz::accept_or_refuse([&] { config = read(yaml, "input"); }, ExitCode::config)) return 0;
  const std::string dumped = config::dump(config);
  Config again;
  fuzz::expect(fuzz::accept_or_refuse([&] { again = read(dumped, "again"); }, ExitCode::config),
               "what was written out to be read");
  fuzz::expect(config::difference(config, again).empty(), "the same configuration again");
  fuzz::expect(again.data.stages == config.data.stages, "the same stages again");
  fuzz::expect(config::dump(again) == dumped, "the same text again");
  return 0;
}
