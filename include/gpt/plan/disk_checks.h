// Where checkpoints go: how fast that disk is, and whether they fit; and how fast tokens come from theirs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

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

// Bytes per second of reading a file in pieces from all over it, past the page cache. Nothing where the file system only reads
// through that, or the file is smaller than a piece of a megabyte. Takes half a second at most. Throws gpt::Error(data).
std::optional<double> measure_read_speed(const std::string& path);

// `needed`: bytes per second that training takes.
Check check_data_speed(const std::string& path, double bytes_per_second, double needed);

}  // namespace gpt::plan
