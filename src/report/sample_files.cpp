#include "gpt/report/sample_files.h"

#include <fmt/format.h>

#include "gpt/core/file.h"

namespace gpt::report {

void SampleFiles::sample(const SampleRecord& sample) {
  create_folders(folder_);
  AtomicFile file(fmt::format("{}/step_{:08}.txt", folder_, sample.step));
  file.write(sample.text + "\n");
  file.commit();
}

}  // namespace gpt::report
