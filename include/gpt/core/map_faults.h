// A mapped file may be truncated or overwritten by another process while it is in use. The kernel answers a read beyond its new
// end with SIGBUS, which would end the process and lose what it has not saved. Here such a page reads as zeros instead, and the
// file is remembered, so that whoever used it can discard what it read and stop with a message.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <span>
#include <string>

namespace gpt::map_faults {

// For MappedFile: `data` is the map of the whole file `path`; `info` is what fstat() said of it.
void watch(const void* data, const struct stat& info, const std::string& path);
void forget(const void* data);

// Throws gpt::Error(data) naming a watched file of which a page was gone when it was read. Costs a load of one variable.
void require_intact();

// The hash128() of a part of a map, as it was when it was read: it tells later whether what has a new time has new content too.
void remember(std::span<const std::byte> part, const std::string& hash);

// A watched file whose size, or time of last change and content, are others than when it was mapped, or of which a page was gone;
// empty if there is none. Where nothing was remembered of it, the time decides. A file that was replaced under its name is still
// intact in the map. Asks the file system about each file, and reads those with a new time.
std::string changed_file();

}  // namespace gpt::map_faults
