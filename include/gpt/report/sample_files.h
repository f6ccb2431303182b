// samples/step_00001000.txt: what the model wrote, a file for each time.
#pragma once

#include <string>
#include <utility>

#include "gpt/report/listener.h"

namespace gpt::report {

class SampleFiles : public Listener {
 public:
  explicit SampleFiles(std::string folder) : folder_(std::move(folder)) {}  // made with the first sample
  void sample(const SampleRecord& sample) override;

 private:
  std::string folder_;
};

}  // namespace gpt::report
