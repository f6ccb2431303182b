#pragma once

#include <unistd.h>

namespace gpt {

// Closes it at the end of the scope.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace gpt
