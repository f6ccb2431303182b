#include "gpt/core/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace gpt {

int terminal_columns(int descriptor) {
  const char* term = std::getenv("TERM");
  if (!isatty(descriptor) || !term || std::string_view(term) == "dumb") return 0;
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

int reading_columns(int descriptor) {
  constexpr int kWidest = 110, kOfAFile = 80;
  const int columns = terminal_columns(descriptor);
  return columns > 0 ? std::min(columns, kWidest) : kOfAFile;
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* locale = std::getenv(name);
    if (locale && *locale) return strcasestr(locale, "utf-8") || strcasestr(locale, "utf8");
  }
  return false;
}

}  // namespace gpt
