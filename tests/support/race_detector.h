// Finds races in kernels that run under emulation (cuda_emulation.h), in whatever order their threads happen to run: two threads access the
// same memory, one of them writes, and nothing puts one before the other. Within a block, block barriers do, and within a warp, warp
// barriers and shuffles; between blocks of a launch nothing does. Vector clocks know it. What the threads access the compiler tells: kernels
// are compiled with -fsanitize=thread, whose calls end here instead of in ThreadSanitizer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace gpt::emulation {

// The races of one launch.
class RaceDetector {
 public:
  void begin_block(uint32_t block, size_t threads);
  void pass_block_barrier() { ++epoch_; }
  void pass_warp_barrier(uint32_t first_thread, uint32_t mask);
  // An atomic access races with those alone that are not.
  void access(uint32_t thread, uintptr_t address, size_t size, bool writes, bool is_atomic = false);

  // The first one: who did what, and to which memory.
  const std::optional<std::string>& race() const { return race_; }

 private:
  static constexpr uint32_t kLanes = 32;
  static constexpr uintptr_t kWord = 8, kPage = 4096;

  struct Access {
    uint32_t block = 0;
    uint16_t thread = 0;
    uint8_t bytes = 0;  // of the word, a bit for each; 0: there was none
    bool is_atomic = false;
    uint32_t epoch = 0, clock = 0;  // block barriers before it, and the lane's time
  };
  // The last write, and the last reads by two threads.
  struct Word {
    Access write, read, other_read;
  };
  using Page = std::array<Word, kPage / kWord>;
  using Clocks = std::array<uint32_t, kLanes>;  // of the lanes of a warp, as far as one of them knows

  Word& word_at(uintptr_t address);
  bool is_before(const Access& earlier, const Access& now) const;
  void compare(const Access& earlier, bool wrote, const Access& now, bool writes, uintptr_t address);

  uint32_t block_ = 0, epoch_ = 0;
  std::vector<Clocks> known_;  // by thread
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  uintptr_t last_page_ = 0;
  Page* page_ = nullptr;
  std::optional<std::string> race_;
};

}  // namespace gpt::emulation
