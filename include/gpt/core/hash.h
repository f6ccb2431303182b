// XXH3-128, fed piece by piece: it identifies contents and detects accidental damage (it does not protect against malice).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace gpt {

class Hash128 {
 public:
  Hash128();
  ~Hash128();
  Hash128(Hash128&&) noexcept;
  Hash128& operator=(Hash128&&) noexcept;
  void update(std::string_view bytes);
  using Digest = std::array<uint64_t, 2>;
  Digest digest() const;    // the hash of all bytes so far
  std::string hex() const;  // the same in 32 digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hash128(std::string_view bytes);
uint64_t hash64(std::string_view bytes);

}  // namespace gpt
