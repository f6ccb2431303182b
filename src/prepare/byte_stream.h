// The bytes of a source, and what gzip and zstd make of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "gpt/core/error.h"
#include "source_list.h"

namespace gpt::prepare {

// A file that cannot be read as what its name says: no permission, damaged, cut off, no text. The message names it.
class UnreadableSource : public Error {
 public:
  UnreadableSource(const std::string& where, const std::string& why) : Error(ExitCode::data, where + ": " + why) {}
};

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // At most `size` > 0 bytes; 0 at the end. Throws UnreadableSource.
  virtual size_t read(char* to, size_t size) = 0;
};

// As it lies on the disk. `consumed` grows by the bytes taken from there. `waiting` is called while a pipe has nothing; what it
// throws ends the wait.
std::unique_ptr<ByteStream> open_file(const Source& source, std::atomic<uint64_t>& consumed,
                                      const std::function<void()>& waiting);

// `name`: of the file, for messages.
std::unique_ptr<ByteStream> unpack(std::unique_ptr<ByteStream> file, Packing packing, const std::string& name);

}  // namespace gpt::prepare
