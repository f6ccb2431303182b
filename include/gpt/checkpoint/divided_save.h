// Checkpoints that several processes write together, each the pieces that it has. What they write is the file that one process would write
// of the same state.
#pragma once

#include <cstdint>
#include <string>

#include "gpt/checkpoint/state.h"
#include "gpt/distributed/communicator.h"

namespace gpt::checkpoint {

// Who writes: all, where all see the same folder; otherwise the first process, to which the others send their parts piece by piece.
enum class Writers { all, first };

// All processes of the run call it. The first one writes a file into the folder, which the others look for.
Writers find_writers(const std::string& folder, distributed::Communicator& ranks);

// What this process has of a state for the next function. What is in parts stays so. Of the weights, which all processes have, each one has a
// part where all write; otherwise they are in parts that are the first one's. Tensors that stay whole are the first one's too.
Checkpoint share_of(Checkpoint state, const distributed::Communicator& ranks, Writers writers);

// All call it, each with its share, and with the path as it sees it. Beside its share a process takes the memory of two pieces of the file
// (memory_of_divided_save), which may cross the border between what two processes have. As save_checkpoint(), in all processes alike: what
// one cannot write, none has written, and the error names it. Throws gpt::Error(peer) where another process is lost.
void save_checkpoint(const std::string& path, const Checkpoint& share, distributed::Communicator& ranks,
                     Writers writers);

double memory_of_divided_save(double state_bytes);

}  // namespace gpt::checkpoint
