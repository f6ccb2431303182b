#include "gpt/core/host_name.h"

#include <unistd.h>

namespace gpt {

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "?";
}

}  // namespace gpt
