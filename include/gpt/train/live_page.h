// gpt-train --live: a gpt-board of its own, in a process of its own, shows the run on a page. Nothing that happens there reaches the run.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

namespace gpt::train {

constexpr const char* kLiveAddress = "127.0.0.1:8090";  // what --live alone means

// Host and port of ADDRESS:PORT. Throws gpt::Error(config).
std::pair<std::string, std::string> live_address(const std::string& text);

class LivePage {
 public:
  // Says where the page is, or in a warning why there is none. `address`: empty where none is wanted. `controls`: the page may tell the run what
  // to do.
  LivePage(const std::string& folder, const std::string& address, bool controls);
  ~LivePage();  // ends it, once those who look have been told how the run ended; a few seconds at most
  LivePage(const LivePage&) = delete;
  LivePage& operator=(const LivePage&) = delete;

 private:
  pid_t child_ = -1;
};

}  // namespace gpt::train
