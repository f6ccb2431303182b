#include "gpt/run/out_of_memory.h"

#include <gtest/gtest.h>

namespace gpt::run {
namespace {

TEST(RequestedBytes, AreReadFromTheMessageOfEachAllocator) {
  EXPECT_EQ(requested_bytes("not enough memory for a tensor of 104857600 bytes\nException raised from ..."), 104857600);
  EXPECT_EQ(requested_bytes("[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: "
                            "you tried to allocate 2147483648 bytes. Error code 12 (Cannot allocate memory)"),
            2147483648);
  EXPECT_EQ(requested_bytes("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.10 GiB"),
            2.5 * 1024 * 1024 * 1024);
  EXPECT_EQ(requested_bytes("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has"), 20.0 * 1024 * 1024);
  EXPECT_EQ(requested_bytes("std::bad_alloc"), 0);
  EXPECT_EQ(requested_bytes("Tried to allocate more than 1EB memory."), 0);
  EXPECT_EQ(requested_bytes("a tensor of "), 0);
}

TEST(ShortageText, NamesThePlaceTheRequestAndWhatIsFree) {
  Shortage shortage{.where = "in step 3", .requested = 512e6, .free = 120e6};
  EXPECT_EQ(to_text(shortage), "out of memory in step 3: 512 MB was requested, and 120 MB is free");
  shortage.free = 3e9;  // the step has given back what it held
  EXPECT_EQ(to_text(shortage), "out of memory in step 3: 512 MB was requested");
  EXPECT_EQ(to_text(Shortage{}), "out of memory before the first step");
  EXPECT_EQ(
      to_text(Shortage{.where = "after step 8", .is_taken_by_others = true, .free = 12e6}),
      "out of memory after step 8: other programs take it; 12.0 MB was free when the run saw that, and it waited in vain");
}

}  // namespace
}  // namespace gpt::run
