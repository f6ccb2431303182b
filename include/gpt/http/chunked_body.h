// A body that comes in chunks (RFC 9112, section 7.1), read as strictly as the rest of a request.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gpt::http {

class ChunkedBody {
 public:
  // `most_bytes`: of the body; `most_trailer_bytes`: of the headers behind it, which are left out.
  ChunkedBody(size_t most_bytes, size_t most_trailer_bytes)
      : most_bytes_(most_bytes), most_trailer_bytes_(most_trailer_bytes) {}

  // Takes what it understands from the front of what has come. True once the body is whole; what follows it stays. Throws Refusal.
  bool take(std::string& received);
  std::string& text() { return text_; }

 private:
  enum class Next { size, data, data_end, trailer, nothing };

  bool take_part(std::string_view& rest);
  bool take_data(std::string_view& rest);
  void read_size(std::string_view line);
  void read_trailer(std::string_view line);

  const size_t most_bytes_;
  size_t most_trailer_bytes_;
  Next next_ = Next::size;
  size_t left_ = 0;  // of the chunk
  std::string text_;
};

}  // namespace gpt::http
