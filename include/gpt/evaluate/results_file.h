// Outcomes in a file of JSON lines, each there as soon as it is known, so that an evaluation that was stopped goes on where it was. The
// first line says what they were computed with.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpt/core/file.h"
#include "gpt/core/lock.h"
#include "gpt/evaluate/example.h"
#include "gpt/model/gpt.h"
#include "gpt/tokenizer/tokenizer.h"

namespace gpt::evaluate {

// What outcomes depend on beside the example. Devices and batches change no more than their last digits.
struct ResultsOrigin {
  std::string model, tokenizer;  // hashes
  std::string dtype;
  bool operator==(const ResultsOrigin&) const = default;
};

std::string hash_of(const model::GPT& model);  // of its form and its weights

class ResultsFile {
 public:
  // What is there already is read; a line that a killed program left unfinished is dropped. Throws gpt::Error: config where the file is of
  // another model, tokenizer or dtype, holds something else or is in use, disk.
  ResultsFile(const std::string& path, const ResultsOrigin& origin);

  std::vector<Outcome> outcomes(const std::string& task) const;  // in the order of the examples
  void append(const std::string& task, Form form, const Outcome& outcome);

 private:
  void read(const std::string& text, const ResultsOrigin& origin);
  void read_line(std::string_view line, int64_t number);

  const std::string path_;
  FileLock lock_;
  std::map<std::string, std::vector<Outcome>> known_;  // by task
  std::map<std::string, int64_t> counts_;              // of its outcomes in the file
  std::unique_ptr<AppendFile> file_;
};

}  // namespace gpt::evaluate
