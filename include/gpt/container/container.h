// The file format of ckpt.pt, LibTorch-free: a stored-only ZIP64 whose records are 64-byte aligned, which torch.load
// opens as its own. Its last record, manifest.json, holds the length of every other record and the hash of each of its pieces; the zip
// comment holds a digest of the manifest, of all headers and of the directory. So every byte of the file is covered, and any flipped bit
// or truncation is found before a single value of the piece is used.
// The place of each piece follows from the names and sizes of the records alone: pieces can be written in any order, by any thread of any
// process that sees the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/container/records.h"

namespace gpt::container {

// The pieces of a container with these records, in the order of the file. Throws std::invalid_argument for names that a container cannot
// have.
std::vector<RecordPiece> container_pieces(const std::vector<RecordPlan>& records);

// Writes beside `path`, fsyncs, renames, fsyncs the folder: `path` holds either the old file or the complete new one.
class ContainerWriter {
 public:
  // Throws std::invalid_argument as container_pieces() does.
  ContainerWriter(std::string path, const std::vector<RecordPlan>& records);
  // For pieces of the file that another process has begun with the same records, and commits. `unfinished`: that one's
  // unfinished_path(), as this process sees it.
  ContainerWriter(std::string path, const std::vector<RecordPlan>& records, const std::string& unfinished);
  ~ContainerWriter();                              // without commit(): removes the unfinished file
  const std::vector<RecordPiece>& pieces() const;  // of all records, in the order of the file
  // Each piece once; different ones may be written by different threads at the same time. Throws gpt::Error(disk).
  void write(size_t piece, std::span<const std::byte> bytes);
  // What another process must know of a piece that was written here, and what it has said of one.
  PieceSums sums(size_t piece) const;
  void take(size_t piece, const PieceSums& sums);
  const std::string& unfinished_path() const;  // where the file is until commit()
  void sync();  // of a file of another process: what was written here survives a power failure. Throws gpt::Error(disk)
  void commit();  // once all are written. Throws gpt::Error(disk): file, operation, errno text

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Maps a file, of this format or of the one before, and verifies all of it but the data of its records. Pieces of these are verified before
// they are first handed out. Throws gpt::Error(checkpoint) saying what the file is instead (empty, a git-lfs pointer, HTML, truncated to N of M
// bytes, damaged in record X, ...).
class ContainerReader {
 public:
  explicit ContainerReader(const std::string& path);
  ~ContainerReader();
  void verify() const;  // all records
  bool has(std::string_view name) const;
  std::span<const std::byte> record(std::string_view name) const;  // aligned; valid while the reader lives
  uint64_t size(std::string_view name) const;                      // of a record, of which nothing is verified
  // Bytes of a record, for which the pieces that have some of them are verified.
  std::span<const std::byte> record(std::string_view name, uint64_t begin, uint64_t end) const;
  std::string_view text(std::string_view name) const;  // the whole, as text
  std::vector<std::string> names() const;              // in the order they were added

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpt::container
