// What the processes of a run say to each other. One process is a communicator of size one, in which everything is the identity, so that
// nobody asks whether there are several. All processes must call the same functions in the same order.
//
// Every function that waits throws gpt::Error(peer) once another process is lost; its message names that one.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace gpt::distributed {

// Tensors are summed in stretches of at most so many bytes, a few at a time, so that one is sent while another is added.
inline constexpr int64_t kStretchBytes = 25 << 20, kStretchesInFlight = 3;

// Which of the `count` values of a stretch a process adds up: parts of the same length, but that the last ones may be shorter or empty.
// They begin at multiples of kParameterAlignment where `count` is one, so that an optimizer can go on with a part.
struct Part {
  int64_t begin, end;
};
Part part_of(int64_t count, int64_t rank, int64_t size);

// In place of a process that adds up all of a stretch: each adds up its part.
inline constexpr int64_t kEach = -1;

// Where a process gets what it adds up, a tensor of its part's length: the sum; or with a row for each process in their order, what each of
// them has sent, not added up. It is added to what is there, or else takes its place.
struct Arrival {
  at::Tensor values;
  bool adds = false;
};

// A tensor of which each process has its part, or the owner all.
struct Gathering {
  at::Tensor x;
  int64_t owner = kEach;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  bool is_first() const { return rank() == 0; }

  // x becomes the sum of all processes' x, which have its shape and type: contiguous, float32, float64, bfloat16, float16 or int64, on the
  // device of the run or the CPU. The order of the additions depends on the number of processes alone: r and r + n/2 first, then r and
  // r + n/4, and so on, as if one process had added up its parts in that order (add_in_pairs). 16-bit values are added in float32.
  // `wire`: the type in which float32 values travel; what arrives is the same everywhere.
  //
  // It is begun, and is there once finish() returns: until then this process can compute something else, but neither read nor write x.
  // Nothing may be called in between but the next three functions and this one.
  virtual void begin_sum(const at::Tensor& x, at::ScalarType wire) = 0;
  // The sum of this process's part of x alone, which may arrive in x itself; what is not written stays as it is. `owner`: kEach, and x is
  // one stretch; or the process whose part is all of x, of any length. At the others nothing arrives.
  virtual void begin_sum_of_part(const at::Tensor& x, at::ScalarType wire, const Arrival& arrival, int64_t owner) = 0;
  // Each process's part of x, or the owner's x, goes to all others.
  virtual void begin_gather(const at::Tensor& x, int64_t owner) = 0;
  // The same for several, none of which is empty and which arrive in this order: each is there once its result has been called, which waits.
  // Until then anything may be called; what does not begin a sum waits for all of them first. Here they are there at once.
  virtual std::vector<std::function<void()>> begin_gathers(const std::vector<Gathering>& all);
  virtual void finish() = 0;
  void sum(const at::Tensor& x, at::ScalarType wire) { begin_sum(x, wire), finish(); }
  void sum(const at::Tensor& x) { sum(x, x.scalar_type()); }

  virtual void broadcast(const at::Tensor& x) = 0;  // from the first process, in place; of any type

  // Begins to send x of process `from`, contiguous and of any type, to all others, where it arrives in their x. It is there, and may change
  // again at the one that sends, once the result has been called, which waits: on a GPU its current stream does. Several may be under way,
  // also together with sums.
  virtual std::function<void()> begin_broadcast(const at::Tensor& x, int64_t from) = 0;

  // Bytes of each process go to each: `sent` has those for all in their order, to[r] of them for process r, and `received` gets from[r] of
  // process r. All are uint8 (n) in the host's memory.
  virtual void exchange(const at::Tensor& received, const std::vector<int64_t>& from, const at::Tensor& sent,
                        const std::vector<int64_t>& to) = 0;

  // Begins to find the largest of all processes' values, element by element, of an int64 tensor in the host's memory. It is there once the
  // result has been called, which waits.
  virtual std::function<void()> begin_largest(const at::Tensor& x) = 0;
  bool is_any(bool own);  // whether it is so in any of the processes
  // What the first one has.
  bool first_says(bool own);
  int64_t first_says(int64_t own);
  double first_says(double own);

  // One more of the same processes, with which another thread of each can speak to those of the others. For tensors in the host's memory.
  virtual std::shared_ptr<Communicator> another() = 0;

  virtual int64_t bytes_sent() const = 0;     // payload, so far
  virtual double seconds_waited() const = 0;  // in finish(), so far
};

// The communicator of one process.
std::shared_ptr<Communicator> alone();

// Between two neighbouring stages, of which the earlier one is the first process of each communicator: activations go `forward`, and their
// gradients come back. They are two, because on a GPU one communicator does what it is told in that order, so that an activation would wait
// for a gradient that does not exist yet.
struct Boundary {
  static constexpr int64_t kEarlier = 0, kLater = 1;  // ranks of the two stages
  std::shared_ptr<Communicator> forward = alone(), backward = alone();
};

// The processes that have the stages of one model between them (pipeline parallelism), in the order of the stages.
struct Pipeline {
  std::shared_ptr<Communicator> stages = alone();
  std::shared_ptr<Communicator> ends =
      alone();             // at the first stage and the last one: these two, which share a tied table
  Boundary before, after;  // this stage, where there is another one

  bool is_first() const { return stages->is_first(); }
  bool is_last() const { return stages->rank() == stages->size() - 1; }
};

// The processes of a run as a mesh: neighbours divide every layer among them (tensor parallelism), stages the layers (pipeline
// parallelism), and processes that have the same part of the model the sequences of an update. Each may be a communicator of size one.
struct Mesh {
  std::shared_ptr<Communicator> all = alone(), data = all, tensor = alone();
  Pipeline pipeline = {};

  // Processes that have one model between them, in parts of layers and in stages: whether there are several, and whether it is so in any.
  bool divides_model() const { return tensor->size() * pipeline.stages->size() > 1; }
  bool is_any_of_model(bool own) const { return pipeline.stages->is_any(tensor->is_any(own)); }
  int64_t bytes_sent() const;  // by this process, to whomever
  double seconds_waited() const;

 private:
  std::vector<const Communicator*> communicators() const;
};
inline Mesh no_mesh() { return {}; }  // of one process

// At most so many bytes of what one process adds up alone travel at a time, from each of the others.
inline int64_t owned_stretch_bytes(int64_t processes) {
  constexpr int64_t kLeast = 1 << 20;
  return std::max(kLeast, kStretchBytes / processes);
}

// What sums cost each of so many processes: the bytes that it sends for one of so many bytes.
double bytes_sent_by_sum(double bytes, int64_t processes);
// Bytes that a sum takes at most beside its tensor, on that one's device. `bytes` travel in stretches of `stretch`, which are sent from a
// copy where they are of another type than the tensor (`is_converted`), and are added in float32 where they have 16 bits (`is_narrow`).
double memory_of_sum(double bytes, double stretch, bool is_converted, bool is_narrow);
double memory_of_gather(double bytes, double stretch, int64_t processes);

// The order in which n parts are added, so that the first becomes their sum: parts i and i + ceil(n / 2) first, then what is left in the
// same way. A power of two gives a tree whose branches may lie on different processes. add(kept, count) adds parts kept, kept + 1, ... to
// parts 0, 1, ..., `count` of them.
void in_pairs(int64_t n, const std::function<void(int64_t kept, int64_t count)>& add);
void add_in_pairs(const at::Tensor& parts);  // (n, ...) float32 or float64

}  // namespace gpt::distributed
