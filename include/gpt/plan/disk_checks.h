// Where checkpoints go: how fast that disk is, and whether they fit; and how fast tokens come from theirs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpt/config/training_config.h"
#include "gpt/data/corpus.h"
#include "gpt/plan/check.h"

namespace gpt::plan {

// The nearest folder above `path` (or `path` itself) that exists.
std::string nearest_folder(const std::string& path);

// Bytes per second of writing and syncing a file, the way a checkpoint is written. The file is removed afterwards.
// Throws gpt::Error(disk).
double measure_write_speed(const std::string& folder);

// `checkpoint_bytes`: of one. `kept`: how many files the run keeps, beside `keep_last` numbered ones.
Check check_disk_speed(const std::string& folder, double bytes_per_second, double checkpoint_bytes);
Check check_disk_space(const std::string& folder, double free_bytes, double checkpoint_bytes, int64_t kept,
                       int64_t keep_last);

// The file that is mapped at this address, or an empty path: then the memory is no file's.
std::string mapped_file(const void* address);

// Bytes per second of reading a file in pieces from all over it, past the page cache. Nothing where the file system only reads
// through that, or the file is smaller than a piece of a megabyte. Takes half a second at most. Throws gpt::Error(data).
std::optional<double> measure_read_speed(const std::string& path);

// The same for the tokens of bins and of prepared texts, which may be larger than the memory that caches them: of their files the slowest,
// because a stage may read from that alone. Nothing where the tokens are in memory.
struct ReadSpeed {
  std::string path;
  double bytes_per_second;
};
std::optional<ReadSpeed> measure_read_speed(const data::Corpus& corpus);

// `needed`: bytes per second that training takes.
Check check_data_speed(const std::string& path, double bytes_per_second, double needed);

// The two that are about the run's folder, measured there.
Checks check_disk(const std::string& output_dir, const TrainingConfig& training, double checkpoint_bytes,
                  bool has_validation);

}  // namespace gpt::plan
