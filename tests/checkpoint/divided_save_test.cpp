// What several processes write together is the file that one writes.
#include "gpt/checkpoint/divided_save.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "checkpoint/sample_checkpoint.h"
#include "core/scratch_folder.h"
#include "distributed/local_group.h"
#include "gpt/checkpoint/checkpoint.h"
#include "gpt/core/file.h"
#include "gpt/layout/parameter_table.h"
#include "gpt/parameters/named_tensors.h"
#include "support/expect_error.h"

namespace gpt::checkpoint {
namespace {

namespace fs = std::filesystem;
using distributed::Communicator;

// Its larger tensors have several pieces each.
Checkpoint some_state() {
  Checkpoint state = test::sample_checkpoint();
  for (const int64_t rows : {1500, 3000}) {
    const std::string name = fmt::format("large.{}", rows);
    state.model.emplace_back(name, at::arange(rows * 2000, at::kFloat).view({rows, 2000}).sin());
    state.optimizer.slot("exp_avg").emplace_back(name, at::arange(rows * 2000, at::kFloat).view({rows, 2000}).cos());
    state.optimizer.slot("exp_avg_sq").emplace_back(name, at::full({rows, 2000}, 1.5));
  }
  return state;
}

// How processes may have a tensor between them: in stretches of so many elements, from one to the next.
Checkpoint with_parts(Checkpoint state, const Communicator& ranks, int64_t length) {
  for (auto& [slot, tensors] : state.optimizer.slots) {
    for (auto& [name, tensor] : tensors) {
      std::vector<TensorPart>& parts = state.parts[slot + "/" + name];
      for (int64_t begin = 0; begin < tensor.numel(); begin += length) {
        TensorPart part{begin, std::min(begin + length, tensor.numel()), begin / length % ranks.size()};
        if (part.rank == ranks.rank()) part.values = tensor.flatten().slice(0, part.begin, part.end);
        parts.push_back(part);
      }
      tensor = at::empty(tensor.sizes(), at::TensorOptions(at::kMeta).dtype(tensor.scalar_type()));
    }
  }
  return state;
}

// Each process's part of the rows, of which there are two pieces, or of the columns.
layout::RowCut cut_for(const Communicator& ranks, int64_t rank, const at::Tensor& tensor, size_t dim) {
  const int64_t half = tensor.size(static_cast<int64_t>(dim)) / 2;
  const auto [begin, end] = distributed::part_of(half, rank, ranks.size());
  const int64_t last = std::min(end, half);
  return {tensor.sizes().vec(), dim, {{begin, last - begin}, {half + begin, last - begin}}};
}

// How processes may have a tensor between them: each a part of it, in which it owns what is after a third, and its neighbour the rest.
Checkpoint with_cut_parts(Checkpoint state, const Communicator& ranks, size_t dim) {
  for (auto& [slot, tensors] : state.optimizer.slots) {
    for (auto& [name, tensor] : tensors) {
      if (!name.starts_with("large")) continue;
      for (int64_t rank = 0; rank < ranks.size(); ++rank) {
        const auto cut = std::make_shared<const layout::RowCut>(cut_for(ranks, rank, tensor, dim));
        layout::ParameterRow row{
            .name = name, .shape = tensor.sizes().vec(), .role = {}, .layer = 0, .is_bias = false, .initial = {}};
        row.cut = *cut;
        const at::Tensor part = parameters::part_of(row, tensor).flatten();
        const int64_t third = part.numel() / 3;
        for (const auto& [begin, end, owner] :
             {std::tuple(int64_t{0}, third, (rank + 1) % ranks.size()), std::tuple(third, part.numel(), rank)})
          state.parts[slot + "/" + name].push_back(
              {begin, end, owner, owner == ranks.rank() ? part.slice(0, begin, end) : at::Tensor(), cut});
      }
      tensor = at::empty(tensor.sizes(), at::TensorOptions(at::kMeta).dtype(tensor.scalar_type()));
    }
  }
  return state;
}

// All processes save what with_parts() gives them. `change`: what of a process's share is not as it should be.
void save_in(int64_t processes, const std::string& path, const Checkpoint& state, int64_t length, Writers writers,
             const std::function<void(int64_t rank, Checkpoint& share, std::string& path)>& change = nullptr) {
  test::in_ranks(processes, [&](const distributed::Group& group) {
    Communicator& ranks = *group.communicator();
    Checkpoint share = share_of(with_parts(state, ranks, length), ranks, writers);
    std::string own_path = path;
    if (change) change(ranks.rank(), share, own_path);
    save_checkpoint(own_path, share, ranks, writers);
  });
}

// Parts that are pieces apart, that cross their borders, of which one piece has several of each process, and which lie in every row.
TEST(DividedSave, WritesTheBytesOfOneProcess) {
  const ScratchFolder folder;
  const Checkpoint state = some_state();
  save_checkpoint(folder / "one.pt", state);
  const std::string one = read_file(folder / "one.pt", ExitCode::disk);
  for (const int64_t processes : {1, 4}) {
    for (const int64_t length : {400'000, 3'000'000, 10'000'000}) {
      for (const Writers writers : {Writers::all, Writers::first}) {
        save_in(processes, folder / "all.pt", state, length, writers);
        EXPECT_TRUE(read_file(folder / "all.pt", ExitCode::disk) == one) << processes << ' ' << length;
      }
    }
  }
  for (const size_t dim : {0, 1}) {
    for (const Writers writers : {Writers::all, Writers::first}) {
      test::in_ranks(3, [&](const distributed::Group& group) {
        Communicator& ranks = *group.communicator();
        save_checkpoint(folder / "all.pt", share_of(with_cut_parts(state, ranks, dim), ranks, writers), ranks, writers);
      });
      EXPECT_TRUE(read_file(folder / "all.pt", ExitCode::disk) == one) << "along " << dim;
    }
  }
  EXPECT_EQ(names_in(folder.path()).size(), 2u) << "nothing unfinished is left";
}

TEST(DividedSave, EachProcessHasItsShareOfTheWeightsAlone) {
  const Checkpoint state = some_state();
  double all = 0;
  for (const auto& [name, tensor] : state.model) all += static_cast<double>(tensor.nbytes());
  test::in_ranks(4, [&](const distributed::Group& group) {
    const Checkpoint share = share_of(state, *group.communicator(), Writers::all);
    double own = 0;
    for (const auto& [name, parts] : share.parts)
      for (const TensorPart& part : parts)
        if (name.starts_with("model/") && part.values.defined()) own += static_cast<double>(part.values.nbytes());
    EXPECT_NEAR(own, all / 4, 16);
  });
}

// What keeps one process from its part keeps all of them, and the file that was there stays.
TEST(DividedSave, WhatOneCannotWriteNoneHasWritten) {
  const ScratchFolder folder;
  const Checkpoint state = some_state();
  const std::string path = folder.file("run/ckpt.pt", "as it was");
  fs::create_directory(folder / "elsewhere");
  std::mutex mutex;
  std::vector<std::string> said;
  const auto save = [&](const std::function<void(int64_t rank, Checkpoint& share, std::string& path)>& change) {
    said.clear();
    test::in_ranks(3, [&](const distributed::Group& group) {
      Communicator& ranks = *group.communicator();
      Checkpoint share = share_of(with_parts(state, ranks, 400'000), ranks, Writers::all);
      std::string own_path = path;
      change(ranks.rank(), share, own_path);
      try {
        save_checkpoint(own_path, share, ranks, Writers::all);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        said.push_back(fmt::format("{} {}", static_cast<int>(error.code()), error.what()));
      }
    });
    EXPECT_EQ(said, std::vector(3, said.at(0)));
    EXPECT_EQ(read_file(path, ExitCode::disk), "as it was");
    EXPECT_EQ(names_in(folder / "run"), std::vector<std::string>{"ckpt.pt"});
  };
  save([&](int64_t rank, Checkpoint&, std::string& own_path) {
    if (rank == 1) own_path = folder / "elsewhere/ckpt.pt";
  });
  EXPECT_EQ(said[0], fmt::format("8 rank 1: cannot write {}: open failed: No such file or directory",
                                 folder / "elsewhere/ckpt.pt"));
  save([&](int64_t rank, Checkpoint&, std::string& own_path) {
    if (rank == 0) own_path = folder / "missing/ckpt.pt";
  });
  EXPECT_EQ(said[0],
            fmt::format("8 cannot write {}: open failed: No such file or directory", folder / "missing/ckpt.pt"));
  save([&](int64_t rank, Checkpoint& share, std::string&) {
    if (rank != 2) return;
    at::Tensor& values = share.parts.at("exp_avg/large.3000").at(2).values;
    values = values.clone();
    values[17] = std::numeric_limits<float>::quiet_NaN();
  });
  EXPECT_EQ(said[0], fmt::format("5 rank 2: {} is not written: 'large.3000' holds values that are not finite", path));
}

// A process reads what it needs of the state, all else stands as zeros, and damage there is found only by the one that looks at all.
TEST(DividedSave, IsReadInParts) {
  const ScratchFolder folder;
  Config config;
  config.model.n_layer = 1, config.model.n_embd = 4, config.model.n_head = 1, config.model.block_size = 8;
  config.model.vocab_size = 2'000'000;  // its table has two pieces
  config.training.batch_size = 1;
  config.data.bin = "ids.bin";
  Checkpoint state;
  state.config = config;
  state.optimizer.step_count = at::zeros({});
  state.rng = {{"cpu", at::detail::createCPUGenerator().get_state()}};
  for (const layout::ParameterRow& row : layout::parameter_table(config.model)) {
    state.model.emplace_back(row.name, at::full(row.shape, 0.5));
    state.optimizer.slot("exp_avg").emplace_back(row.name, at::full(row.shape, -1.5));
    state.optimizer.slot("exp_avg_sq").emplace_back(row.name, at::full(row.shape, 2.5));
  }
  const std::string path = folder / "ckpt.pt", table = state.model[0].first;
  ASSERT_EQ(state.model[0].second.numel(), 8'000'000);
  save_checkpoint(path, state);
  const ValueRanges needed = {{table, {{1024, 2048}, {10'000, 20'000}}}};
  StateNeeds needs{.ranges = [&needed](const UpdateConfig&) { return needed; }};
  const auto expect_read = [&] {
    const Checkpoint read = load_checkpoint(path, needs);
    at::Tensor expected = at::zeros({8'000'000});
    for (const auto& [begin, end] : needed.at(table)) expected.slice(0, begin, end).fill_(-1.5);
    EXPECT_TRUE(read.optimizer.slot("exp_avg")[0].second.flatten().equal(expected));
    EXPECT_TRUE(read.optimizer.slot("exp_avg_sq")[1].second.equal(at::zeros_like(state.model[1].second)));
    EXPECT_TRUE(read.model[1].second.equal(state.model[1].second));
    EXPECT_EQ(read.read_state->at(table).size(), 2u);
  };
  expect_read();
  const float value = -1.5;
  std::string many;
  for (int i = 0; i < 100; ++i) many.append(reinterpret_cast<const char*>(&value), sizeof value);
  const size_t begin = read_file(path, ExitCode::disk).find(many);
  ASSERT_NE(begin, std::string::npos);
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out)
      .seekp(static_cast<std::streamoff>(begin + 30'000'000))
      .put('x');
  expect_read();
  EXPECT_ERROR((void)load_checkpoint(path), ExitCode::checkpoint, "differs from its hash");
  needs.verifies_all = true;
  EXPECT_ERROR((void)load_checkpoint(path, needs), ExitCode::checkpoint, "differs from its hash");
}

TEST(DividedSave, AllWriteWhereAllSeeTheFolder) {
  const ScratchFolder folder, other;
  test::in_ranks(3, [&](const distributed::Group& group) {
    Communicator& ranks = *group.communicator();
    EXPECT_EQ(find_writers(folder.path(), ranks), Writers::all);
    EXPECT_EQ(find_writers((ranks.rank() == 1 ? other : folder).path(), ranks), Writers::first);
    EXPECT_EQ(find_writers(folder / "missing", ranks), Writers::first);
  });
  EXPECT_TRUE(names_in(folder.path()).empty());
}

}  // namespace
}  // namespace gpt::checkpoint
