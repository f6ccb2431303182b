// What a process reads of a checkpoint that it goes on from: no more than it keeps, with which it goes on as with all of it.
#include "gpt/parallel/divided_state.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "core/scratch_folder.h"
#include "gpt/checkpoint/checkpoint.h"
#include "run/mesh_run.h"

namespace gpt::parallel {
namespace {

using namespace run;

struct ReadCase {
  const char* name;
  Shape shape;
  int64_t zero = 0;
  StateDtype dtype = StateDtype::float32;
};

void PrintTo(const ReadCase& read_case, std::ostream* out) { *out << read_case.name; }

const ReadCase kReadCases[] = {
    {"weights_of_blocks", {2, 1}, 3},
    {"parts_of_layers", {2, 2}},
    {"parts_of_layers_with_moments_of_8_bits", {4, 2}, 1, StateDtype::int8},
    {"weights_of_parts_of_blocks", {4, 2}, 3},
    {"stages", {2, 1, 2}},
    {"stages_of_parts_of_layers", {4, 2, 2}},
};

class NeededState : public testing::TestWithParam<ReadCase> {};

int64_t count_of(const std::vector<layout::FlatSpan>& ranges) {
  int64_t count = 0;
  for (const auto& [begin, end] : ranges) count += end - begin;
  return count;
}

// Returns how many values there are in the ranges.
int64_t expect_only(const checkpoint::ValueRanges& ranges, const parameters::NamedTensors& read,
                    const parameters::NamedTensors& all) {
  int64_t count = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [name, whole] = all[i];
    const at::Tensor expected = at::zeros_like(whole.flatten());
    if (const auto own = ranges.find(name); own != ranges.end()) {
      for (const auto& [begin, end] : own->second)
        expected.slice(0, begin, end).copy_(whole.flatten().slice(0, begin, end));
      count += count_of(own->second);
    }
    EXPECT_TRUE(at::equal(read[i].second.flatten(), expected)) << name;
  }
  return count;
}

int64_t kept_by(const parameters::Parameters& parameters) {
  if (!parameters.divided_values()) return parameters.count();
  int64_t count = 0;
  for (const parameters::OwnValues& own : parameters.divided_values()->own()) count += own.span.end - own.span.begin;
  return count;
}

TEST_P(NeededState, IsAllThatIsRead) {
  const auto& [name, shape, zero, dtype] = GetParam();
  const ScratchFolder folder;
  const std::string path = folder / "ckpt.pt";
  const data::Corpus corpus = corpus_with_validation();
  Config config = divided_run(corpus);
  make_gpt2(config);
  config.model.tie_weights = false, config.training.optimizer.eps = 1e-3;
  config.training.optimizer.state_dtype = dtype;
  checkpoint::save_checkpoint(path, outcome_on({1, 1}, config, corpus, 3).checkpoint);
  const checkpoint::Checkpoint all = checkpoint::read_checkpoint(path);
  config.distributed.zero = zero;
  in_mesh(shape, config, corpus, [&](const run::Setup& setup) {
    const checkpoint::Checkpoint read =
        checkpoint::load_checkpoint(path, needed_state(setup.mesh, setup.config.distributed));
    ASSERT_TRUE(read.read_weights && read.read_state);
    const int64_t count = expect_only(*read.read_weights, read.model, all.model);
    if (dtype == StateDtype::float32)
      (void)expect_only(*read.read_state, read.optimizer.slot("exp_avg"), all.optimizer.slot("exp_avg"));
    Beginning of_part, of_all;
    of_part.start = StartingPoint{.checkpoint = read, .path = path};
    of_all.start = StartingPoint{.checkpoint = all, .path = path};
    run::Run from_part(setup, of_part), from_all(setup, of_all);
    EXPECT_LE(count, kept_by(from_part.model().parameters()));
    EXPECT_LT(count, layout::parameter_count(layout::parameter_table(config.model)));
    const checkpoint::Checkpoint a = captured_whole(from_part.state(), setup),
                                 b = captured_whole(from_all.state(), setup);
    if (setup.mesh.all->is_first()) expect_same_state(a, b);
  });
}

INSTANTIATE_TEST_SUITE_P(Of, NeededState, testing::ValuesIn(kReadCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace gpt::parallel
