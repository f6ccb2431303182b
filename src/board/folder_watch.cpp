#include "gpt/board/folder_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace gpt::board {

FolderWatch::FolderWatch()
    : events_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

FolderWatch::~FolderWatch() {
  for (const int descriptor : {events_, wake_})
    if (descriptor >= 0) close(descriptor);
}

void FolderWatch::add(const std::string& folder) {
  const int watch = inotify_add_watch(events_, folder.c_str(),
                                      IN_MODIFY | IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE_SELF |
                                          IN_MOVE_SELF | IN_ONLYDIR);
  if (watch < 0) return;
  std::erase_if(folders_, [&](const auto& known) { return known.second == folder && known.first != watch; });
  folders_[watch] = folder;
}

void FolderWatch::remove(const std::string& folder) {
  for (auto watch = folders_.begin(); watch != folders_.end();) {
    const bool is_it = watch->second == folder;
    if (is_it) inotify_rm_watch(events_, watch->first);
    watch = is_it ? folders_.erase(watch) : std::next(watch);
  }
}

std::set<std::string> FolderWatch::wait(std::chrono::milliseconds most) {
  std::set<std::string> changed;
  pollfd sources[] = {{events_, POLLIN, 0}, {wake_, POLLIN, 0}};  // a descriptor of -1 is passed over
  if (::poll(sources, 2, static_cast<int>(most.count())) <= 0) return changed;
  uint64_t times;
  (void)!::read(wake_, &times, sizeof times);
  alignas(inotify_event) char bytes[16'384];
  for (ssize_t size; (size = ::read(events_, bytes, sizeof bytes)) > 0;) {
    for (ssize_t at = 0; at < size;) {
      const auto* const event = reinterpret_cast<const inotify_event*>(bytes + at);
      at += static_cast<ssize_t>(sizeof *event + event->len);
      if ((event->mask & IN_Q_OVERFLOW) != 0)
        for (const auto& [watch, folder] : folders_) changed.insert(folder);
      if (const auto found = folders_.find(event->wd); found != folders_.end()) {
        changed.insert(found->second);
        if ((event->mask & IN_IGNORED) != 0) folders_.erase(found);
      }
    }
  }
  return changed;
}

void FolderWatch::wake() {
  const uint64_t one = 1;
  (void)!::write(wake_, &one, sizeof one);
}

}  // namespace gpt::board
