#include "text_cache.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/hash.h"
#include "gpt/core/log.h"
#include "gpt/core/process.h"
#include "gpt/data/metadata.h"
#include "gpt/data/prepare.h"
#include "gpt/data/prepare_report.h"
#include "gpt/tokenizer/tokenizer.h"
#include "source_list.h"

namespace gpt {
namespace {

namespace fs = std::filesystem;

constexpr int kForm = 1;  // of what lies in the cache: other forms are prepared anew

std::string cache_root(const DataConfig& config) {
  if (!config.cache_dir.empty()) return config.cache_dir;
  if (const char* caches = std::getenv("XDG_CACHE_HOME"); caches && *caches) return caches + std::string("/gpt-train");
  if (const char* home = std::getenv("HOME"); home && *home) return home + std::string("/.cache/gpt-train");
  throw Error(ExitCode::config, "data.cache_dir: there is no home folder to keep prepared text in; name a folder");
}

// The contents of the input, whatever their names. What can be read only once cannot be found again.
std::string content_hash(const std::string& input) {
  Hash128 hash;
  for (const Source& source : find_sources({input}, "").sources) {
    if (source.stream) {
      throw Error(ExitCode::data, fmt::format("data.text: {} can be read only once, and a run may stop and go on; prepare it with "
                                              "gpt-prepare, and name the result in data.bin", source.name));
    }
    const MappedFile file(source.path, ExitCode::data);
    hash.update(fmt::format("{} {} {}\n", static_cast<int>(source.kind), static_cast<int>(source.packing), file.bytes().size()));
    hash.update({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  }
  return hash.hex();
}

// char and bpe:N follow from the text; any other tokenizer is what it holds, wherever it lies.
std::string identity(const std::string& tokenizer) {
  if (tokenizer == "char" || tokenizer.starts_with("bpe:")) return tokenizer;
  return hash128(make_tokenizer(tokenizer, {})->to_json());
}

class TextCache {
 public:
  TextCache(const std::string& input, const DataConfig& config)
      : config_(config), input_(input), root_(cache_root(config)), content_(content_hash(input)) {}

  std::string folder(const std::string& saved_tokenizer) const {
    if (saved_tokenizer.empty()) return prepared(config_.tokenizer, identity(config_.tokenizer));
    const std::string hash = hash128(saved_tokenizer);
    // A run that goes on finds what it made when it began.
    if (const std::string first = folder_for(identity(config_.tokenizer)); tokenizer_hash(first) == hash) return first;
    const std::string file = root_ + "/" + hash + ".json";
    create_folders(root_);
    AtomicFile json(file);
    json.write(saved_tokenizer);
    json.commit();
    return prepared(file, hash);
  }

 private:
  std::string folder_for(const std::string& tokenizer) const {
    return root_ + "/" + hash128(fmt::format("{} {} {} {} {} {}", kForm, content_, tokenizer, config_.text_field,
                                             config_.validation_fraction, config_.max_chars));
  }

  // Of a finished entry; empty where there is none.
  static std::string tokenizer_hash(const std::string& folder) {
    std::error_code ignored;
    const std::string metadata = folder + "/" + kMetadataFile;
    return fs::exists(metadata, ignored) ? read_metadata(metadata).tokenizer_hash : "";
  }

  std::string prepared(const std::string& tokenizer, const std::string& identity) const {
    const std::string folder = folder_for(identity);
    if (!tokenizer_hash(folder).empty()) return folder;
    create_folders(root_);
    const FileLock lock(folder + ".lock", [this, said = false](const std::string& holder) mutable {
      if (!std::exchange(said, true)) log::info(fmt::format("Waiting for {}, which prepares {}", holder, input_));
      if (process::stop_signal() != 0) throw Error(ExitCode::interrupted, "interrupted while waiting for " + holder);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    });
    if (!tokenizer_hash(folder).empty()) return folder;
    const std::string how = tokenizer.starts_with(root_) ? "the tokenizer of the run" : "the tokenizer " + tokenizer;
    log::info(fmt::format("Preparing {} with {}, once: it is kept in {}", input_, how, folder));
    PrepareOptions options;
    options.inputs = {input_};
    options.tokenizer = tokenizer;
    options.text_field = config_.text_field;
    options.validation_fraction = config_.validation_fraction;
    options.max_chars = config_.max_chars;
    options.force = true;  // all that lies in a folder of the cache is the cache's
    PrepareReport report;
    prepare(options, folder, std::ref(report));
    log::status("");
    return folder;
  }

  const DataConfig& config_;
  const std::string input_, root_, content_;
};

}  // namespace

std::string prepared_text(const std::string& input, const DataConfig& config, const std::string& saved_tokenizer) {
  try {
    return TextCache(input, config).folder(saved_tokenizer);
  } catch (const Error& error) {
    log::status("");
    if (error.code() != ExitCode::disk) throw;
    throw Error(ExitCode::disk, fmt::format("{}; prepared text is kept there: set data.cache_dir to a folder with room", error.what()));
  }
}

}  // namespace gpt
