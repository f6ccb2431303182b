#include "gpt/checkpoint/divided_save.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpt/checkpoint/checkpoint.h"
#include "gpt/container/container.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/layout/cut.h"
#include "parts.h"

namespace gpt::checkpoint {
namespace {

using namespace checkpoint;
using distributed::Communicator;

// Values of one process for all others, as bytes.
template <typename Value>
Value from_first(const Value& own, Communicator& ranks) {
  static_assert(std::is_trivially_copyable_v<Value>);
  const at::Tensor bytes = at::empty({sizeof(Value)}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), &own, sizeof own);
  ranks.broadcast(bytes);
  Value said;
  std::memcpy(&said, bytes.const_data_ptr(), sizeof said);
  return said;
}

// A text of at most so many bytes; what is longer is cut.
template <size_t size>
std::array<char, size> in_array(std::string_view text) {
  std::array<char, size> chars{};
  std::copy_n(text.begin(), std::min(text.size(), size - 1), chars.begin());
  return chars;
}

// What one process has failed in, all have.
class Agreement {
 public:
  explicit Agreement(Communicator& ranks) : ranks_(ranks) {}

  // Does it, unless something has failed here before.
  template <typename Work>
  void attempt(const Work& work) {
    if (own_) return;
    try {
      work();
    } catch (const std::exception& error) {
      own_ = std::current_exception();
      const auto* const known = dynamic_cast<const Error*>(&error);
      // The first process alone says why a run ends (train_command), so that another one's fault is, for all others, that of a peer.
      fault_.code = static_cast<int64_t>(known ? known->code() : ExitCode::peer);
      fault_.text = in_array<kLongest>(known ? std::string(error.what()) : first_line(error.what()));
    }
  }

  // All call it: throws in all what has failed in the first of those in which something has.
  void conclude() {
    const at::Tensor all = at::zeros({ranks_.size(), static_cast<int64_t>(sizeof(Fault) / sizeof(int64_t))}, at::kLong);
    std::memcpy(all[ranks_.rank()].mutable_data_ptr(), &fault_, sizeof fault_);
    ranks_.sum(all);
    if (own_ && ranks_.is_first()) std::rethrow_exception(own_);
    for (int64_t rank = 0; rank < ranks_.size(); ++rank) {
      Fault fault;
      std::memcpy(&fault, all[rank].const_data_ptr(), sizeof fault);
      if (fault.code == 0) continue;
      const std::string of = rank == 0 ? "" : fmt::format("rank {}: ", rank);
      throw Error(static_cast<ExitCode>(fault.code), of + fault.text.data());
    }
  }

 private:
  static constexpr size_t kLongest = 1016;
  struct Fault {
    int64_t code = 0;
    std::array<char, kLongest> text{};
  };
  static_assert(sizeof(Fault) % sizeof(int64_t) == 0);

  Communicator& ranks_;
  Fault fault_;
  std::exception_ptr own_;
};

std::span<const std::byte> bytes_in(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// What one process has of a piece.
struct Held {
  const TensorPart* part;
  int64_t begin, end;  // of the elements, in the order of the part
  int64_t size;        // of an element

  int64_t rank() const { return part->rank; }
  int64_t bytes() const { return (end - begin) * size; }
  // In the order of the tensor.
  std::vector<layout::FlatSpan> stretches() const { return layout::stretches_in_whole(part->cut.get(), {begin, end}); }
};

// The records of a file, of which the first process has the texts.
struct Records {
  Records(const std::array<uint64_t, kTextRecords.size()>& text_bytes, const Checkpoint& share) {
    for (size_t i = 0; i < kTextRecords.size(); ++i) plan.push_back({kTextRecords[i], text_bytes[i]});
    for (const auto& [name, tensor] : tensors_of(share)) {
      plan.push_back({record_of(name), tensor.nbytes()});
      parts.push_back(tensor.is_meta() ? share.parts.at(name)
                                       : std::vector<TensorPart>{{0, tensor.numel(), 0, tensor.flatten()}});
      sizes.push_back(tensor.element_size());
    }
  }

  bool is_text(const container::RecordPiece& piece) const { return piece.record < kTextRecords.size(); }
  std::vector<Held> held(const container::RecordPiece& piece) const;

  std::vector<container::RecordPlan> plan;
  std::vector<std::vector<TensorPart>> parts;  // of each tensor; one that is whole is the first process's
  std::vector<uint64_t> sizes;                 // of its elements
};

std::vector<Held> Records::held(const container::RecordPiece& piece) const {
  const size_t tensor = piece.record - kTextRecords.size();
  const auto size = static_cast<int64_t>(sizes[tensor]), begin = static_cast<int64_t>(piece.begin) / size,
             end = static_cast<int64_t>(piece.end) / size;
  std::vector<Held> held;
  for (const TensorPart& part : parts[tensor]) {
    const auto before = [&part](int64_t place) { return layout::values_before(part.cut.get(), place); };
    const Held own{&part, std::max(part.begin, before(begin)), std::min(part.end, before(end)), size};
    if (own.begin < own.end) held.push_back(own);
  }
  return held;
}

// A file that is being written by all.
class DividedFile {
 public:
  // `file`: null where this process writes no pieces.
  DividedFile(const Records& records, const std::vector<TextRecord>& texts, Communicator& ranks, Writers writers)
      : records_(records),
        texts_(texts),
        ranks_(ranks),
        pieces_(container::container_pieces(records.plan)),
        travelling_(static_cast<size_t>(ranks.size())) {
    deal_out(writers);
  }

  void write_own(container::ContainerWriter& file) const;  // what this process has whole
  // The others: each round one for each process. `file`: null where it cannot be written here, though the others need what this one has.
  int64_t rounds() const;
  void write_travelling(int64_t round, container::ContainerWriter* file, Agreement& agreement) const;
  // All call it: what the first process must know of what the others have written.
  void exchange_sums(container::ContainerWriter* file, Agreement& agreement) const;

 private:
  void deal_out(Writers writers);
  static at::Tensor own_bytes(const Held& held);  // (n) uint8
  static void put(const Held& held, const at::Tensor& values, const container::RecordPiece& piece,
                  const at::Tensor& bytes);
  at::Tensor own_piece(const container::RecordPiece& piece) const;
  std::optional<size_t> travelling(int64_t writer, int64_t round) const;
  int64_t bytes_of(int64_t rank, std::optional<size_t> piece) const;  // that a process has of it
  at::Tensor collected(int64_t round, const std::vector<int64_t>& to) const;
  void write_received(size_t piece, const at::Tensor& received, std::vector<int64_t> next,
                      container::ContainerWriter& file) const;

  const Records& records_;
  const std::vector<TextRecord>& texts_;
  Communicator& ranks_;
  std::vector<container::RecordPiece> pieces_;
  std::vector<size_t> own_;                      // pieces that this process has whole, and writes
  std::vector<std::vector<size_t>> travelling_;  // for each process those that it writes and does not have whole
};

// A piece that one process has is written by it. Another one goes to the process that has most of it; of several to the one that gets the
// fewest of them.
void DividedFile::deal_out(Writers writers) {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    std::vector<int64_t> bytes(static_cast<size_t>(ranks_.size()));
    if (!records_.is_text(pieces_[i]))
      for (const Held& held : records_.held(pieces_[i])) bytes[static_cast<size_t>(held.rank())] += held.bytes();
    size_t writer = 0;
    for (size_t rank = 1; writers == Writers::all && rank < bytes.size(); ++rank) {
      const bool has_more = bytes[rank] > bytes[writer], has_as_much = bytes[rank] == bytes[writer] && bytes[rank] > 0;
      if (has_more || (has_as_much && travelling_[rank].size() < travelling_[writer].size())) writer = rank;
    }
    const bool is_whole =
        records_.is_text(pieces_[i]) || bytes[writer] == static_cast<int64_t>(pieces_[i].end - pieces_[i].begin);
    if (!is_whole) travelling_[writer].push_back(i);
    if (is_whole && static_cast<int64_t>(writer) == ranks_.rank()) own_.push_back(i);
  }
}

// In the host's memory, for which all of a GPU's values might be too many.
at::Tensor DividedFile::own_bytes(const Held& held) {
  const at::Tensor values = held.part->values.detach().narrow(0, held.begin - held.part->begin, held.end - held.begin);
  return values.cpu().contiguous().view(at::kByte);
}

// Its values, as bytes, to their places among those of the piece.
void DividedFile::put(const Held& held, const at::Tensor& values, const container::RecordPiece& piece,
                      const at::Tensor& bytes) {
  const auto* from = values.const_data_ptr<uint8_t>();
  for (const auto& [begin, end] : held.stretches()) {
    const int64_t count = (end - begin) * held.size;
    std::memcpy(bytes.mutable_data_ptr<uint8_t>() + begin * held.size - static_cast<int64_t>(piece.begin), from,
                static_cast<size_t>(count));
    from += count;
  }
}

// This process has all of it.
at::Tensor DividedFile::own_piece(const container::RecordPiece& piece) const {
  const std::vector<Held> all = records_.held(piece);
  if (all.size() == 1) return own_bytes(all[0]);
  const at::Tensor bytes = at::empty({static_cast<int64_t>(piece.end - piece.begin)}, at::kByte);
  for (const Held& held : all) put(held, own_bytes(held), piece, bytes);
  return bytes;
}

void DividedFile::write_own(container::ContainerWriter& file) const {
  at::parallel_for(0, std::ssize(own_), /*grain_size=*/1, [&](int64_t first, int64_t last) {
    const at::NoGradGuard no_gradients;
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
      const container::RecordPiece& piece = pieces_[own_[i]];
      if (records_.is_text(piece)) {
        file.write(own_[i],
                   std::as_bytes(std::span(texts_[piece.record].text).subspan(piece.begin, piece.end - piece.begin)));
      } else {
        file.write(own_[i], bytes_in(own_piece(piece)));
      }
    }
  });
}

int64_t DividedFile::rounds() const {
  size_t most = 0;
  for (const std::vector<size_t>& pieces : travelling_) most = std::max(most, pieces.size());
  return static_cast<int64_t>(most);
}

std::optional<size_t> DividedFile::travelling(int64_t writer, int64_t round) const {
  const std::vector<size_t>& pieces = travelling_[static_cast<size_t>(writer)];
  return static_cast<size_t>(round) < pieces.size() ? std::optional(pieces[static_cast<size_t>(round)]) : std::nullopt;
}

int64_t DividedFile::bytes_of(int64_t rank, std::optional<size_t> piece) const {
  int64_t bytes = 0;
  if (piece)
    for (const Held& held : records_.held(pieces_[*piece]))
      if (held.rank() == rank) bytes += held.bytes();
  return bytes;
}

// What this process has of the pieces of a round, in the order of those that write them, `to` bytes for each.
at::Tensor DividedFile::collected(int64_t round, const std::vector<int64_t>& to) const {
  at::Tensor bytes = at::empty({std::reduce(to.begin(), to.end())}, at::kByte);
  int64_t place = 0;
  for (int64_t writer = 0; writer < ranks_.size(); ++writer) {
    const std::optional<size_t> piece = travelling(writer, round);
    if (!piece) continue;
    for (const Held& held : records_.held(pieces_[*piece])) {
      if (held.rank() != ranks_.rank()) continue;
      bytes.narrow(0, std::exchange(place, place + held.bytes()), held.bytes()).copy_(own_bytes(held));
    }
  }
  return bytes;
}

// What has come of each process lies in the order of what it has, from `next` on.
void DividedFile::write_received(size_t piece, const at::Tensor& received, std::vector<int64_t> next,
                                 container::ContainerWriter& file) const {
  const at::Tensor bytes = at::empty_like(received);
  for (const Held& held : records_.held(pieces_[piece])) {
    int64_t& place = next[static_cast<size_t>(held.rank())];
    put(held, received.narrow(0, std::exchange(place, place + held.bytes()), held.bytes()), pieces_[piece], bytes);
  }
  file.write(piece, bytes_in(bytes));
}

void DividedFile::write_travelling(int64_t round, container::ContainerWriter* file, Agreement& agreement) const {
  const at::NoGradGuard no_gradients;
  const std::optional<size_t> own = travelling(ranks_.rank(), round);
  std::vector<int64_t> to, from, begins;
  int64_t arrives = 0;
  for (int64_t rank = 0; rank < ranks_.size(); ++rank) {
    to.push_back(bytes_of(ranks_.rank(), travelling(rank, round)));
    from.push_back(bytes_of(rank, own));
    begins.push_back(std::exchange(arrives, arrives + from.back()));
  }
  const at::Tensor received = at::empty({arrives}, at::kByte);
  ranks_.exchange(received, from, collected(round, to), to);
  if (own && file) agreement.attempt([&] { write_received(*own, received, begins, *file); });
}

void DividedFile::exchange_sums(container::ContainerWriter* file, Agreement& agreement) const {
  constexpr auto kNumbers = static_cast<int64_t>(sizeof(container::PieceSums) / sizeof(int32_t));
  const at::Tensor numbers = at::zeros({std::ssize(pieces_) * kNumbers}, at::kInt);
  auto* const sums = reinterpret_cast<container::PieceSums*>(numbers.mutable_data_ptr());
  std::vector<size_t> written = own_;
  const auto& of_others = travelling_[static_cast<size_t>(ranks_.rank())];
  written.insert(written.end(), of_others.begin(), of_others.end());
  agreement.attempt([&] {
    if (file)
      for (const size_t piece : written) sums[piece] = file->sums(piece);
  });
  const at::Tensor all = numbers.to(at::kLong);  // each is another process's zero, so that nothing carries
  ranks_.sum(all);
  agreement.conclude();
  if (!ranks_.is_first()) return;
  numbers.copy_(all);
  for (size_t piece = 0; piece < pieces_.size(); ++piece) file->take(piece, sums[piece]);
}

// What the first process says of the file that it has begun.
struct Begun {
  std::array<uint64_t, kTextRecords.size()> text_bytes;
  std::array<char, 1024> name;  // of the unfinished file, in the folder
};

// The path of another file in the same folder.
std::string beside(const std::string& path, const std::string& name) {
  return (std::filesystem::path(path).parent_path() / name).string();
}

void require_finite_share(const std::string& path, const Checkpoint& share) {
  const at::NoGradGuard no_gradients;
  for (const auto& [slot, tensors] : share.optimizer.slots)
    for (const auto& [name, tensor] : tensors)
      if (!tensor.is_meta()) require_finite(path, name, tensor);
  for (const auto& [record, parts] : share.parts) {
    const std::string name = record.substr(record.find('/') + 1);  // without that of the group
    for (const TensorPart& part : parts)
      if (part.values.defined()) require_finite(path, name, part.values);
  }
}

std::string name_of_file(const std::string& path) { return std::filesystem::path(path).filename().string(); }

// An equal stretch of the weights, which follow one another, for each process.
class EvenCut {
 public:
  EvenCut(const parameters::NamedTensors& weights, int64_t processes) : processes_(processes) {
    for (const auto& [name, tensor] : weights) bytes_ += tensor.is_meta() ? 0 : static_cast<int64_t>(tensor.nbytes());
  }

  // The parts of `tensor`, which is the next one of the weights.
  std::vector<TensorPart> parts(const at::Tensor& tensor) {
    const auto size = static_cast<int64_t>(tensor.element_size());
    std::vector<TensorPart> parts;
    for (int64_t rank = 0, begin = 0; rank < processes_; ++rank) {
      const int64_t border = static_cast<int64_t>(static_cast<__int128>(bytes_) * (rank + 1) / processes_) - first_;
      const int64_t end = std::clamp<int64_t>(border / size, begin, tensor.numel());
      if (begin < end) parts.push_back({begin, end, rank});
      begin = end;
    }
    first_ += static_cast<int64_t>(tensor.nbytes());
    return parts;
  }

 private:
  int64_t processes_, bytes_ = 0, first_ = 0;
};

}  // namespace

Writers find_writers(const std::string& folder, Communicator& ranks) {
  struct Said {
    uint64_t nonce;
    std::array<char, 1024> name;
  };
  Said said{};
  std::unique_ptr<AtomicFile> file;
  try {
    if (ranks.is_first()) {
      file = std::make_unique<AtomicFile>(folder + "/folder");
      std::random_device random;
      said = {uint64_t{random()} << 32 | random() | 1, in_array<1024>(name_of_file(file->unfinished_path()))};
      file->write(std::to_string(said.nonce));
    }
  } catch (const Error&) { said = {}; }
  said = from_first(said, ranks);
  bool is_there = said.nonce != 0;
  try {
    constexpr uint64_t kMost = 100;
    is_there = is_there && read_file(folder + "/" + said.name.data(), ExitCode::disk, SizeLimit{"a number", kMost}) ==
                               std::to_string(said.nonce);
  } catch (const Error&) { is_there = false; }
  return ranks.is_any(!is_there) ? Writers::first : Writers::all;
}

Checkpoint share_of(Checkpoint state, const Communicator& ranks, Writers writers) {
  EvenCut cut(state.model, ranks.size());
  for (auto& [name, tensor] : state.model) {
    if (tensor.is_meta()) continue;
    std::vector<TensorPart>& parts = state.parts["model/" + name];
    parts = writers == Writers::all ? cut.parts(tensor) : std::vector<TensorPart>{{0, tensor.numel(), 0}};
    for (TensorPart& part : parts)
      if (part.rank == ranks.rank())
        part.values = tensor.detach().reshape({-1}).narrow(0, part.begin, part.end - part.begin);
    tensor = at::empty_like(tensor, at::TensorOptions(at::kMeta));
  }
  return state;
}

void save_checkpoint(const std::string& path, const Checkpoint& share, Communicator& ranks, Writers writers) {
  Agreement agreement(ranks);
  std::vector<TextRecord> texts;
  std::unique_ptr<container::ContainerWriter> file;
  Begun begun{};
  agreement.attempt([&] {
    require_finite_share(path, share);
    if (!ranks.is_first()) return;
    texts = texts_of(share);
    for (size_t i = 0; i < texts.size(); ++i) begun.text_bytes[i] = texts[i].text.size();
    file = std::make_unique<container::ContainerWriter>(path, Records(begun.text_bytes, share).plan);
    begun.name = in_array<1024>(name_of_file(file->unfinished_path()));
  });
  begun = from_first(begun, ranks);
  agreement.conclude();

  const Records records(begun.text_bytes, share);
  const DividedFile divided(records, texts, ranks, writers);
  agreement.attempt([&] {
    if (!file && writers == Writers::all)
      file = std::make_unique<container::ContainerWriter>(path, records.plan, beside(path, begun.name.data()));
    if (file) divided.write_own(*file);
  });
  for (int64_t round = 0; round < divided.rounds(); ++round) divided.write_travelling(round, file.get(), agreement);
  agreement.attempt([&] {
    if (file && !ranks.is_first()) file->sync();
  });
  divided.exchange_sums(file.get(), agreement);
  agreement.attempt([&] {
    if (ranks.is_first()) file->commit();
  });
  agreement.conclude();
}

double memory_of_divided_save(double state_bytes) {
  return 2 * std::min(state_bytes, static_cast<double>(container::kLongestPiece));
}

}  // namespace gpt::checkpoint
