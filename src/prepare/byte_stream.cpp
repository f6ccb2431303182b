#include "byte_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <isa-l/igzip_lib.h>
#include <poll.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

namespace gpt::prepare {
namespace {

constexpr size_t kPackedBlock = 1 << 17;

class FileStream final : public ByteStream {
 public:
  FileStream(const Source& source, std::atomic<uint64_t>& consumed, const std::function<void()>& waiting)
      : name_(source.name), consumed_(consumed), waiting_(waiting) {
    fd_ = source.path == "-" ? dup(STDIN_FILENO) : open(source.path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd_ < 0) throw UnreadableSource("cannot read " + name_, std::generic_category().message(errno));
    posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  ~FileStream() override { close(fd_); }

  size_t read(char* to, size_t size) override {
    for (;;) {
      wait();
      const ssize_t count = ::read(fd_, to, std::min<size_t>(size, 1 << 30));
      if (count >= 0) {
        consumed_ += static_cast<uint64_t>(count);
        return static_cast<size_t>(count);
      }
      if (errno != EINTR && errno != EAGAIN) {
        throw UnreadableSource("cannot read " + name_, std::generic_category().message(errno));
      }
    }
  }

 private:
  // A pipe whose writer is slow, or a file of the kernel that has nothing yet, must not keep the program from stopping.
  void wait() {
    pollfd ready{.fd = fd_, .events = POLLIN, .revents = 0};
    constexpr int kMilliseconds = 100;
    while (poll(&ready, 1, kMilliseconds) <= 0) waiting_();
  }

  const std::string name_;
  std::atomic<uint64_t>& consumed_;
  const std::function<void()> waiting_;
  int fd_;
};

// What has been read of a packed stream and not yet been unpacked.
class PackedInput {
 public:
  explicit PackedInput(std::unique_ptr<ByteStream> stream) : stream_(std::move(stream)), block_(kPackedBlock) {}

  // False at the end of the stream.
  bool refill() {
    if (begin_ < end_) return true;
    begin_ = 0;
    end_ = stream_->read(block_.data(), block_.size());
    return end_ > 0;
  }
  char* data() { return block_.data() + begin_; }
  size_t size() const { return end_ - begin_; }
  void take(size_t count) { begin_ += count; }
  // Those that fill a file up. True where nothing else is left of what was read.
  bool skip_zeros() {
    while (begin_ < end_ && block_[begin_] == 0) ++begin_;
    return begin_ == end_;
  }

 private:
  std::unique_ptr<ByteStream> stream_;
  std::vector<char> block_;
  size_t begin_ = 0, end_ = 0;
};

// By ISA-L, which takes a third of zlib's time for text.
class GzipStream final : public ByteStream {
 public:
  GzipStream(std::unique_ptr<ByteStream> packed, std::string name) : input_(std::move(packed)), name_(std::move(name)) {
    isal_inflate_init(&inflater_);
    inflater_.crc_flag = ISAL_GZIP;  // headers are read, and sums and sizes compared
  }

  size_t read(char* to, size_t size) override {
    const size_t wanted = std::min<size_t>(size, std::numeric_limits<uint32_t>::max());
    inflater_.next_out = reinterpret_cast<uint8_t*>(to);
    inflater_.avail_out = static_cast<uint32_t>(wanted);
    while (inflater_.avail_out == wanted) {
      // At the end of the input the inflater may still hold back what did not fit before.
      const bool more = input_.refill();
      if (!more && !in_member_ && any_member_) return 0;
      if (more && !in_member_ && any_member_ && input_.skip_zeros()) continue;
      if (more || in_member_) step();
      if (!more && in_member_ == any_member_ && inflater_.avail_out == wanted) {
        throw UnreadableSource(name_, "the gzip data are cut off: the file ends early; copy or download it again");
      }
    }
    return wanted - inflater_.avail_out;
  }

 private:
  // A gzip file may consist of several members: those of Common Crawl have one for each record.
  void step() {
    if (!in_member_ && any_member_) isal_inflate_reset(&inflater_);
    in_member_ = any_member_ = true;
    const auto size = static_cast<uint32_t>(input_.size());
    inflater_.next_in = reinterpret_cast<uint8_t*>(input_.data());
    inflater_.avail_in = size;
    const int status = isal_inflate(&inflater_);
    input_.take(size - inflater_.avail_in);
    if (status < 0) throw UnreadableSource(name_, std::string("the gzip data are damaged: ") + describe(status));
    in_member_ = inflater_.block_state != ISAL_BLOCK_FINISH;
  }

  static const char* describe(int status) {
    switch (status) {
      case ISAL_INVALID_WRAPPER: return "incorrect header";
      case ISAL_UNSUPPORTED_METHOD: return "unknown compression method";
      case ISAL_INCORRECT_CHECKSUM: return "incorrect checksum";
      case ISAL_INVALID_LOOKBACK: return "a distance that is too far back";
      default: return "an invalid block";
    }
  }

  PackedInput input_;
  const std::string name_;
  inflate_state inflater_;  // 90 kB, which isal_inflate_init() sets
  bool in_member_ = false, any_member_ = false;
};

class ZstdStream final : public ByteStream {
 public:
  ZstdStream(std::unique_ptr<ByteStream> packed, std::string name)
      : input_(std::move(packed)), name_(std::move(name)), decoder_(ZSTD_createDStream(), ZSTD_freeDStream) {
    if (!decoder_) throw std::bad_alloc();
    // Up to 2 GB, as zstd --long=31 writes it: the window is as large as the file needs.
    ZSTD_DCtx_setParameter(decoder_.get(), ZSTD_d_windowLogMax, ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
  }

  size_t read(char* to, size_t size) override {
    ZSTD_outBuffer out{.dst = to, .size = size, .pos = 0};
    while (out.pos == 0) {
      // At the end of the input the decoder may still hold back what did not fit before.
      const bool more = input_.refill();
      ZSTD_inBuffer in{.src = input_.data(), .size = more ? input_.size() : 0, .pos = 0};
      if (!more && !in_frame_) {
        if (!any_frame_) {
          throw UnreadableSource(name_, "the zstd data are cut off: the file is empty; copy or download it again");
        }
        return 0;
      }
      const size_t status = ZSTD_decompressStream(decoder_.get(), &out, &in);
      if (ZSTD_isError(status)) {
        throw UnreadableSource(name_, fmt::format("the zstd data are damaged: {}", ZSTD_getErrorName(status)));
      }
      input_.take(in.pos);
      in_frame_ = status != 0;
      any_frame_ = true;
      if (!more && in_frame_ && out.pos == 0) {
        throw UnreadableSource(name_, "the zstd data are cut off: the file ends early; copy or download it again");
      }
    }
    return out.pos;
  }

 private:
  PackedInput input_;
  const std::string name_;
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> decoder_;
  bool in_frame_ = false, any_frame_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> open_file(const Source& source, std::atomic<uint64_t>& consumed,
                                      const std::function<void()>& waiting) {
  return std::make_unique<FileStream>(source, consumed, waiting);
}

std::unique_ptr<ByteStream> unpack(std::unique_ptr<ByteStream> file, Packing packing, const std::string& name) {
  if (packing == Packing::gzip) return std::make_unique<GzipStream>(std::move(file), name);
  if (packing == Packing::zstd) return std::make_unique<ZstdStream>(std::move(file), name);
  return file;
}

}  // namespace gpt::prepare
