// RUN/tensorboard/events.out.tfevents.*: scalars, samples and settings for TensorBoard, written without TensorFlow. A file is a sequence
// of TFRecords, each a serialized Event of tensorflow/core/util/event.proto.
//
// Every start of a run begins a file of its own with a SessionLog of START, which makes TensorBoard drop what earlier files say
// of later steps: those that were lost and are done again. Each record reaches the kernel at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpt/core/file.h"
#include "gpt/report/listener.h"

namespace gpt::report {

class TensorBoardEvents : public Listener {
 public:
  // The folder is made when the run begins. The functions throw gpt::Error(disk).
  explicit TensorBoardEvents(std::string folder);

  void begin(const RunRecord& run) override;
  void step(const StepRecord& step) override;
  void losses(const std::vector<LossRecord>& losses) override;
  void evaluation(const EvaluationRecord& evaluation) override;
  void task(const TaskRecord& task) override;
  void sample(const SampleRecord& sample) override;

 private:
  std::string folder_;
  std::optional<AppendFile> file_;
};

// CRC-32C (Castagnoli), as TFRecords use it.
uint32_t crc32c(std::string_view bytes);

// Length, masked CRC of the length, the bytes, masked CRC of the bytes; all little-endian.
std::string tf_record(std::string_view bytes);

}  // namespace gpt::report
