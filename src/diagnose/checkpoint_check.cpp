#include "gpt/diagnose/checkpoint_check.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <system_error>

#include "gpt/core/error.h"
#include "gpt/core/format.h"
#include "gpt/run/folder.h"

namespace gpt::diagnose {
namespace {

namespace fs = std::filesystem;

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

plan::Check readable(const std::string& file, const checkpoint::Checkpoint& checkpoint) {
  int64_t parameters = 0;
  for (const auto& [name, tensor] : checkpoint.model) parameters += tensor.numel();
  const std::string loss = std::isfinite(checkpoint.best_val_loss)
                               ? fmt::format("best validation loss {:.4f}", checkpoint.best_val_loss)
                               : "not yet evaluated";
  const std::string detail =
      fmt::format("{}: step {}, {} parameters, {}; every hash matches, and its parts fit together", file,
                  with_commas(checkpoint.step), format_count(static_cast<double>(parameters)), loss);
  switch (checkpoint::python_view_of(file, checkpoint)) {
    case checkpoint::PythonView::ours: return plan::passed("checkpoint", detail);
    case checkpoint::PythonView::plain:
      return plan::passed("checkpoint",
                          detail + "; Python loads plain values and tensors, as another version wrote them");
    case checkpoint::PythonView::foreign: break;
  }
  return plan::warned("checkpoint", detail + ", but what Python would load from it is not what this program writes",
                      "load it in Python only with weights_only=True, and only if you trust its source");
}

}  // namespace

std::optional<checkpoint::Checkpoint> read_and_check(const std::string& path, plan::Check& check) {
  try {
    const std::string file = checkpoint::checkpoint_file(path);
    checkpoint::Checkpoint checkpoint = checkpoint::load_checkpoint(file);
    check = readable(file, checkpoint);
    return checkpoint;
  } catch (const Error& e) {
    const std::string folder = is_folder(path) ? path : fs::path(path).parent_path().string();
    const auto other = run::peek_run(folder.empty() ? "." : folder);
    check = plan::failed("checkpoint", e.what(),
                         other ? fmt::format("use {}, which is at step {} and can be read", other->path,
                                             with_commas(other->checkpoint.step))
                               : "name a checkpoint that gpt-train has written, or the folder of a run");
    return std::nullopt;
  }
}

plan::Check check_checkpoint(const std::string& path) {
  plan::Check check;
  (void)read_and_check(path, check);
  return check;
}

}  // namespace gpt::diagnose
