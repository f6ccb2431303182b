// Where the socket of a run is, however long its folder's path is: sockaddr_un has 107 bytes, so the folder is opened, and the socket reached
// through its descriptor.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <string>

#include "gpt/control/message.h"

namespace gpt::control {

// The descriptor is the caller's; -1 with errno where the folder cannot be opened.
inline int open_folder(const std::string& folder) { return open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC); }

inline sockaddr_un address_in(int folder) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(folder) + "/" + kSocketFile;
  std::memcpy(static_cast<char*>(address.sun_path), path.c_str(), path.size() + 1);
  return address;
}

inline bool connects(int socket, const sockaddr_un& address) {
  return connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace gpt::control
