// The file format of ckpt.pt, LibTorch-free: a stored-only ZIP64 whose records are 64-byte aligned, which torch.load
// opens as its own. Its last record, manifest.json, holds the length and hash of every other record; the zip comment
// holds a digest of the manifest, of all headers and of the directory. So every byte of the file is covered, and one
// pass over the data finds any flipped bit or truncation before a single value is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt {

// Writes beside `path`, fsyncs, renames, fsyncs the folder: `path` holds either the old file or the complete new one.
class ContainerWriter {
 public:
  // `expected_bytes`: about the size that it will have, for the message of a full disk; 0 = not known.
  explicit ContainerWriter(std::string path, uint64_t expected_bytes = 0);
  ~ContainerWriter();  // without commit(): removes the unfinished file
  // "data.pkl", "data/0", ...: printable ASCII without quotes and backslashes, each once.
  void add(const std::string& name, std::span<const std::byte> bytes);
  void add(const std::string& name, std::string_view text);
  void commit();  // throws gpt::Error(disk): file, operation, errno text
  uint64_t bytes_written() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Maps and verifies. Throws gpt::Error(checkpoint) saying what the file is instead (empty, a git-lfs pointer, HTML,
// truncated to N of M bytes, damaged in record X, ...).
class ContainerReader {
 public:
  explicit ContainerReader(const std::string& path);
  ~ContainerReader();
  bool has(std::string_view name) const;
  std::span<const std::byte> record(std::string_view name) const;  // aligned; valid while the reader lives
  std::string_view text(std::string_view name) const;              // the same, as text
  std::vector<std::string> names() const;                          // in the order they were added

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpt
