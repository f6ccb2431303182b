// Locks that keep two processes from writing in one place.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "gpt/core/error.h"

namespace gpt {

// An exclusive flock on a file of its own for the life of the object. The holder's PID is in the file, which is
// removed with the lock; one that a killed process left behind is taken over.
// On a file system without locks the file itself keeps others out: it names process, host and time, and is taken over where
// that process is known to be dead. Otherwise a person has to remove it, which the holder's name then says.
class FileLock {
 public:
  // While another process holds it, `busy` is called with "process PID ..."; it either throws or returns to try again.
  FileLock(std::string path, const std::function<void(const std::string& holder)>& busy);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  // The file of that name is the locked one: nobody has removed or replaced it, or a folder on its path. True also where the file
  // system cannot tell.
  bool is_at(const std::string& path) const;
  bool is_in_place() const { return is_at(path_); }

 private:
  bool try_lock(const std::function<void(const std::string& holder)>& busy);
  bool try_claim(bool is_new, const std::string& holder, const std::function<void(const std::string& holder)>& busy);
  void take(int fd, std::string_view holder);  // writes into the file who it is

  std::string path_;
  int fd_ = -1;
};

// FOLDER/.lock, for the one process that writes there. Throws gpt::Error(code) with the PID of another process that
// does, and the `setting` that names the folder. Taking it removes the unfinished files that killed writers left there and in
// its folder of samples, each of which may be as large as a checkpoint.
class FolderLock {
 public:
  FolderLock(const std::string& folder, ExitCode code, const std::string& setting);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // What is written to the folder's path goes into the locked folder. Otherwise somebody has moved or removed that one, put
  // something in its place, or removed its lock.
  bool is_in_place() const { return lock_.is_in_place(); }

  // Where the locked folder is reached through its descriptor, wherever it is now: while nobody else has locked it and it still
  // exists. `now`: its path, for people.
  struct Locked {
    std::string path, now;
  };
  std::optional<Locked> locked() const;

 private:
  FileLock lock_;
  int fd_;  // the folder; -1: it could not be opened, and locked() finds nothing
};

// Whether a process writes in the folder, which holds its lock, as far as can be seen from here.
bool is_locked(const std::string& folder);

}  // namespace gpt
