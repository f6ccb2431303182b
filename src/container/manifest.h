// What follows from the names and sizes of a container's records: the pieces that they are divided into, and the text of manifest.json
// but for the hashes in it. The writer knows it before it writes a byte, and the reader makes the same of a file's headers and compares.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/container/records.h"
#include "gpt/container/zip.h"

namespace gpt::container {

inline constexpr std::string_view kFolder = "archive/";  // torch.load requires all records in one folder, of any name
inline constexpr std::string_view kManifest = "manifest.json";
inline constexpr std::string_view kFormat = "gpt-train checkpoint";
inline constexpr int kVersion = 2;        // that is written
inline constexpr int kOldestVersion = 1;  // that is read: each record is one piece
inline constexpr size_t kHashDigits = 32;

std::string_view name_of(const zip::Entry& entry);

// What a record may be called: the manifest and messages quote it as it is.
bool is_possible_name(std::string_view name);

// Where the entry's data begin in the file.
uint64_t data_offset(const zip::Entry& entry);

class Manifest {
 public:
  // `entries`: all records but the manifest itself.
  Manifest(int version, std::span<const zip::Entry> entries);

  const std::vector<RecordPiece>& pieces() const { return pieces_; }  // in the order of the file
  // The pieces of a record: from first_piece(record) to first_piece(record + 1).
  size_t first_piece(size_t record) const { return first_pieces_[record]; }
  std::string_view hash(size_t piece) const { return std::string_view(text_).substr(hashes_[piece], kHashDigits); }
  void set_hash(size_t piece, std::string_view hash);  // different ones at the same time, too
  const std::string& text() const { return text_; }

  // Takes the hashes that another text has in these places. False where it differs elsewhere.
  bool take_hashes(std::string_view from);

 private:
  std::vector<RecordPiece> pieces_;
  std::vector<size_t> first_pieces_;
  std::vector<size_t> hashes_;  // where they are in the text
  std::string text_;
};

// The end of a file: the directory, and in its comment the digest of everything that the manifest does not cover. `entries` ends with the
// manifest's, whose data end at `offset`.
std::string ending_of(int version, const std::vector<zip::Entry>& entries, std::string_view manifest, uint64_t offset);

}  // namespace gpt::container
