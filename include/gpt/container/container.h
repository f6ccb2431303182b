// The file format of ckpt.pt, LibTorch-free: a stored-only ZIP64 whose records are 64-byte aligned, which torch.load
// opens as its own. Its last record, manifest.json, holds the length of every other record and the hash of each of its pieces; the zip
// comment holds a digest of the manifest, of all headers and of the directory. So every byte of the file is covered, and any flipped bit
// or truncation is found before a single value of the piece is used.
// The place of each piece follows from the names and sizes of the records alone: pieces can be written in any order, by any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/container/records.h"

namespace gpt {

// Writes beside `path`, fsyncs, renames, fsyncs the folder: `path` holds either the old file or the complete new one.
class ContainerWriter {
 public:
  // Throws std::invalid_argument for names that a container cannot have.
  ContainerWriter(std::string path, const std::vector<RecordPlan>& records);
  ~ContainerWriter();                              // without commit(): removes the unfinished file
  const std::vector<RecordPiece>& pieces() const;  // of all records, in the order of the file
  // Each piece once; different ones may be written by different threads at the same time. Throws gpt::Error(disk).
  void write(size_t piece, std::span<const std::byte> bytes);
  void commit();  // once all are written. Throws gpt::Error(disk): file, operation, errno text

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Maps a file, of this format or of the one before, and verifies all of it but the data of its records. These are verified before they are
// first handed out. Throws gpt::Error(checkpoint) saying what the file is instead (empty, a git-lfs pointer, HTML, truncated to N of M
// bytes, damaged in record X, ...).
class ContainerReader {
 public:
  explicit ContainerReader(const std::string& path);
  ~ContainerReader();
  void verify() const;  // all records
  bool has(std::string_view name) const;
  std::span<const std::byte> record(std::string_view name) const;  // aligned; valid while the reader lives
  std::string_view text(std::string_view name) const;              // the same, as text
  std::vector<std::string> names() const;                          // in the order they were added

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpt
