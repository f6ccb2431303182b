// What this process takes of the machine's memory: what the kernel cannot take back from it. Pages of tokens and other files that
// it maps are none of that, however many of them are resident: where memory is short the kernel drops them and reads them again.
// The program's own code counts, as much of it as was resident before the first file was mapped.
#pragma once

#include <cstdint>

namespace gpt::process_memory {

int64_t bytes();  // now

// The largest number of bytes() that was looked at with sample(), or now.
int64_t peak();
void sample();  // reads one small file: 20 microseconds

void before_mapping();  // the first call notes how much of the program's code is resident

}  // namespace gpt::process_memory
