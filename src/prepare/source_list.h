// Which files the inputs name, in which order, and how each of them is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpt {

enum class TextKind {
  plain,       // a file is a document
  json_lines,  // .jsonl, .ndjson: a line is a document
  wet,         // .wet of Common Crawl: a record is a document
};
enum class Packing { none, gzip, zstd };

struct Source {
  std::string path;  // what is opened; "-" is standard input
  std::string name;  // what messages and metadata call it
  TextKind kind = TextKind::plain;
  Packing packing = Packing::none;
  int64_t bytes = 0;    // on the disk; 0 = not known
  bool stream = false;  // standard input or a pipe: it can be read once
  bool found = false;   // in a folder or by a pattern, so that it is passed over where it cannot be read as text
};

struct PassedOver {
  std::string path, why;  // the whole message, which names the path
};

struct SourceList {
  std::vector<Source> sources;
  std::vector<PassedOver> passed_over;  // links to folders (they might lead round in circles), devices, web archives
};

// Inputs are files, folders (with all that is below them, by path; hidden files and `output_dir` left out), patterns with
// * ? [] and "-" for standard input, which is text, or with a suffix what a file of that name would be ("-.jsonl.gz").
// Throws gpt::Error(data) for what is named itself: no such file, nothing found, not readable; gpt::Error(config) where
// output_dir is an input.
SourceList find_sources(const std::vector<std::string>& inputs, const std::string& output_dir);

}  // namespace gpt
