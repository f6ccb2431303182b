#include "gpt/run/beginning.h"

#include <string>
#include <utility>

#include "gpt/config/automatic.h"
#include "gpt/run/same_run.h"
#include "gpt/run/teacher.h"

namespace gpt::run {
namespace {

// Nothing where training.init_from is not set.
std::optional<InitialWeights> find_initial(const Config& config, const config::Origins& origins) {
  const std::string& path = config.training.init_from;
  return path.empty() ? std::nullopt : std::optional(read_initial_weights(config, origins));
}

}  // namespace

Beginning Beginning::take_tensors() {
  Beginning taken = *this;
  if (initial) initial->model.clear();
  return taken;
}

void Beginning::release_tensors() {
  if (start) start->checkpoint = {};
  if (initial) initial->model.clear(), initial->frozen.clear();
}

Beginning find_beginning(const Folder& folder, const Config& config, const config::Origins& origins, bool restart) {
  FoundStart found = folder.find_start(config.training.resume_from, restart);
  Beginning begins{.start = std::move(found.start), .initial = {}, .in_the_way = std::move(found.in_the_way)};
  if (!begins.start) begins.initial = find_initial(config, origins);
  return begins;
}

RunData load_data(const Config& asked, const config::Origins& origins, Beginning& begins) {
  RunData data{.config = asked, .corpus = {}};
  if (begins.start) config::keep_choices(data.config, origins, begins.start->checkpoint.config);
  data.corpus =
      begins.initial ? load_corpus_for(*begins.initial, data.config) : load_run_corpus(data.config, begins.start);
  data.config.model.vocab_size = data::vocabulary_for(data.corpus, data.config.model.vocab_size);
  require_fitting_teacher(data.config, data.config.data, data.corpus);
  if (begins.start) data.changes = require_same_configuration(*begins.start, data.config);
  return data;
}

}  // namespace gpt::run
