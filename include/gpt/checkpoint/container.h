// The file format of ckpt.pt, LibTorch-free: a stored-only ZIP64 whose records are 64-byte aligned, which torch.load
// opens as its own. A manifest record holds length and hash of every other record; the zip comment holds a digest of all
// bytes before it, so that any flipped bit or cut is found before a single value is used.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt {

// Writes beside `path`, fsyncs, renames, fsyncs the folder: `path` holds the old file or the whole new one, never less.
class ContainerWriter {
 public:
  explicit ContainerWriter(std::string path);
  ~ContainerWriter();  // without commit(): removes the unfinished file
  void add(const std::string& name, std::span<const std::byte> bytes);  // "data.pkl", "data/0", ...
  void commit();       // throws gpt::Error(disk): file, operation, errno text
  uint64_t bytes_written() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Maps and verifies. Throws gpt::Error(checkpoint) with what the file is instead (empty, a git-lfs pointer, HTML, cut at
// byte N of M, a record whose hash differs, ...).
class ContainerReader {
 public:
  explicit ContainerReader(const std::string& path);
  ~ContainerReader();
  bool has(std::string_view name) const;
  std::span<const std::byte> record(std::string_view name) const;
  std::vector<std::string> names() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpt
