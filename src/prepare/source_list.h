// Which files the inputs name, in which order, and what their names say of each of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpt::prepare {

enum class TextKind {
  plain,       // a file is a document
  json_lines,  // .jsonl, .ndjson, .json: a line is a document
  wet,         // .wet of Common Crawl: a record is a document
};
enum class Packing { none, gzip, zstd };

struct Source {
  std::string path;     // what is opened; "-" is standard input
  std::string name;     // what messages and metadata call it
  uint32_t number = 0;  // in the list as it was found: it stays when others are passed over
  TextKind kind = TextKind::plain;
  Packing packing = Packing::none;
  int64_t bytes = 0;    // on the disk; 0 = not known
  bool stream = false;  // standard input or a pipe: it can be read once
  bool found = false;   // in a folder or by a pattern, so that it is passed over where it cannot be read as text
};

struct PassedOver {
  std::string path, why;  // the whole message, which names the path
};

struct LeftOut {
  std::string path;
  std::string what;  // "a run", "token ids", "the output"; empty = it is hidden
};

struct SourceList {
  std::vector<Source> sources;
  std::vector<PassedOver> passed_over;  // links to folders (they might lead round in circles), devices, web archives
  std::vector<LeftOut> left_out;        // what is not meant as text, by path
};

// Inputs are files, folders (with all that is below them, by path), patterns with * ? [] and **, which stands for any number of
// folders, and "-" for standard input, which is text, or with a suffix what a file of that name would be ("-.jsonl.gz").
// What was not named itself is left out where it is hidden or was written by this program: runs and whatever lies in the folder
// for them, prepared tokens, `output_dir`, `cache_dir`.
// Throws gpt::Error(data) for what is named itself: no such file, nothing found, not readable; gpt::Error(config) where
// output_dir or cache_dir is an input.
SourceList find_sources(const std::vector<std::string>& inputs, const std::string& output_dir,
                        const std::string& cache_dir = "");

// Logs one line, such as "Left out: models (runs), tokens (token ids), 2 hidden files or folders", where there is anything.
void announce(const std::vector<LeftOut>& left_out);

}  // namespace gpt::prepare
