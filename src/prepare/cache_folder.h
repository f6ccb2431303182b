// The folder that keeps prepared texts: a folder for each, named by a hash, with a lock beside it while it is prepared.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpt::prepare {

struct CacheEntry {
  std::string path;
  int64_t bytes = 0;
  int64_t last_used = 0;  // nanoseconds since 1970
  std::string text = {};  // "texts/a.txt and 39 more"; empty where preparing it was interrupted
};

// Notes that a finished entry is used, and keeps every process from removing it while the result lives. Null where there
// is none.
std::shared_ptr<const void> use_cache_entry(const std::string& path);

// Moves away what lies in the place of an entry, or of its lock, and cannot be one: a file, a link, a folder with other things in
// it than files. Warns of it.
void clear_cache_place(const std::string& path);

// The entries of the folder `root`, the one that was used last first.
std::vector<CacheEntry> cache_entries(const std::string& root);

struct RemovedEntries {
  int64_t entries = 0, bytes = 0;
  int64_t kept = 0;  // entries that are in use or being prepared
};

// Removes the entries that were used least recently until the others have at most `limit` bytes; below 0, all of them. What
// the cache did not make stays.
RemovedEntries remove_cache_entries(const std::string& root, int64_t limit);

}  // namespace gpt::prepare
