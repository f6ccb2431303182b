// How the micro-batches of an update are divided among processes, and how their gradients come together again.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpt/config/distributed_config.h"
#include "gpt/config/training_config.h"
#include "gpt/data/sample_schedule.h"
#include "gpt/distributed/communicator.h"
#include "gpt/layout/cut.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/parameters/divided_values.h"

namespace gpt::parallel {

// How many of so many lanes each of so many processes has.
inline int64_t lanes_of_each(int64_t lanes, int64_t processes) { return std::max<int64_t>(1, lanes / processes); }

// How many values of a flat buffer of `size` are summed at a time.
int64_t stretch_values(int64_t size, int64_t processes);

// ZeRO 2 and 3: where the segments of a flat buffer end, which are sent, and freed, one by one. With ZeRO 2 each has the parameters of whole
// layers, as few as are worth sending, and the last one the embeddings besides. With ZeRO 3, where blocks come together again, each block is
// one, and what precedes and what follows them in the buffer. In a stage a tied table is one, as it is at the other end.
std::vector<int64_t> segment_ends(int64_t zero, const std::vector<layout::ParameterRow>& rows,
                                  const layout::FlatLayout& layout, bool is_of_stage);

// A span that is one process's, or all processes', each of which has an equal part of it.
struct OwnedSpan : layout::FlatSpan {
  int64_t owner = distributed::kEach;
};
// What is sent, and freed, at once: spans that are summed one by one.
using Segment = std::vector<OwnedSpan>;

// Which of the processes updates a matrix of Muon's, in the order in which they lie in the flat buffer: so that all have about as much to
// compute.
std::vector<int64_t> owners_of_matrices(const std::vector<layout::ParameterRow>& rows, const OptimizerConfig& optimizer,
                                        int64_t processes);

// Micro-batch m of an update belongs to lane m mod L, and lane l to process l mod R, which divides L. A lane adds its micro-batches up one
// after the other. At the end lanes l and l + L/2 are added, then l and l + L/4, and so on: those of one process first, as it happens, then
// those of several (Communicator::sum). So the bits of the sum do not depend on R.
struct Division {
  std::shared_ptr<distributed::Communicator> ranks = distributed::alone();
  int64_t lanes = 1;                 // L; where it is less, the number of processes counts
  at::ScalarType wire = at::kFloat;  // the type in which float32 gradients travel
  int64_t zero = 0;                  // ZeRO, where there are several processes to divide what follows
  // Processes that divide the model itself (layout/cut.h): each has a flat buffer of its own part, or of its stage, to which all of the
  // above applies.
  std::shared_ptr<distributed::Communicator> tensor = distributed::alone();
  distributed::Pipeline pipeline = {};
  std::shared_ptr<distributed::Communicator> all = ranks;
  OptimizerConfig optimizer = {};  // Muon's matrices are not divided, but each belongs to one process

  Division() = default;
  Division(std::shared_ptr<distributed::Communicator> of, const DistributedConfig& config,
           const OptimizerConfig& updates_by = {})
      : ranks(std::move(of)),
        lanes(std::max(config.lanes, ranks->size())),
        wire(config.reduce_dtype == ReduceDtype::bfloat16 ? at::kBFloat16 : at::kFloat),
        zero(ranks->size() > 1 ? config.zero : 0),
        optimizer(updates_by) {}
  Division(const distributed::Mesh& mesh, const DistributedConfig& config, const OptimizerConfig& updates_by = {})
      : Division(mesh.data, config, updates_by) {
    tensor = mesh.tensor, pipeline = mesh.pipeline, all = mesh.all;
  }

  layout::ModelPart part() const {
    return {tensor->rank(), tensor->size(), pipeline.stages->rank(), pipeline.stages->size()};
  }

  // What others ask. Because of which key processes speak to each other within forward and backward passes, "zero: 2", which therefore are
  // not recorded as CUDA graphs, and need the program's own operators; empty: they do not.
  std::string speaks_within_passes_with() const;
  bool speaks_within_passes() const { return !speaks_within_passes_with().empty(); }
  // Processes speak to each other while the weights change, so that this is not recorded either; and new weights may arrive after it.
  bool speaks_within_updates() const { return divides_state(); }
  // Several processes change the same weights, each for itself.
  bool repeats_updates() const { return ranks->size() > 1 && !divides_state(); }
  // A checkpoint is written by several processes, and each reads of one what it needs.
  bool divides_checkpoints() const { return divides_state() || divides_layers() || has_stages(); }
  // Before one of them captures its state, all prepare it together.
  bool captures_together() const { return divides_layers(); }

  // What is divided, for those that divide it (parallel/): each process updates and remembers its spans of the flat buffer alone; and keeps
  // sums of gradients of those alone; and the values of blocks. Each layer; or the layers.
  bool divides_state() const { return zero > 0; }
  bool divides_gradients() const { return zero > 1; }
  bool divides_weights() const { return zero > 2; }
  bool divides_layers() const { return tensor->size() > 1; }
  bool has_stages() const { return pipeline.stages->size() > 1; }

  int64_t processes() const { return all->size(); }
  // The processes of a stage, all where there are no stages, and which of these has this rank among those that have the same part.
  int64_t processes_of_stage() const { return ranks->size() * tensor->size(); }
  int64_t place_in_stage(int64_t rank, int64_t part) const { return rank * tensor->size() + part; }
  int64_t own_lanes() const { return lanes_of_each(lanes, ranks->size()); }
  // Which of this process's lanes a micro-batch of its own belongs to.
  size_t lane_of(int64_t micro_batch) const { return static_cast<size_t>(micro_batch % lanes / ranks->size()); }
  at::ScalarType wire_of(at::ScalarType gradient) const { return gradient == at::kFloat ? wire : gradient; }
  // The segments of a flat buffer: with divides_gradients() those that segment_ends() has, otherwise one of all.
  std::vector<Segment> segments(const std::vector<layout::ParameterRow>& rows, const layout::FlatLayout& layout) const;
  layout::FlatSpan part_of(const OwnedSpan& span, int64_t rank) const;  // may be empty
  layout::FlatSpan own_part(const OwnedSpan& span) const { return part_of(span, ranks->rank()); }
  // A process's spans, this one's where none is named: its part of each span of a segment that has one. Without divides_state(): all.
  std::vector<layout::FlatSpan> spans(const std::vector<layout::ParameterRow>& rows, const layout::FlatLayout& layout,
                                      int64_t rank) const;
  std::vector<layout::FlatSpan> spans(const std::vector<layout::ParameterRow>& rows,
                                      const layout::FlatLayout& layout) const {
    return spans(rows, layout, ranks->rank());
  }
  // What this process keeps of the values, where divides_weights().
  std::optional<parameters::ValueDivision> values(const std::vector<layout::ParameterRow>& rows,
                                                  const layout::FlatLayout& layout) const;
  data::Dealing dealing(int64_t micro_batches) const { return {ranks->rank(), ranks->size(), micro_batches}; }
};

}  // namespace gpt::parallel
