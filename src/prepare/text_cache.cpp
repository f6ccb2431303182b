#include "gpt/prepare/text_cache.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "cache_folder.h"
#include "content_hash.h"
#include "conversation_input.h"
#include "gpt/chat/chat_template.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/format.h"
#include "gpt/core/hash.h"
#include "gpt/core/home.h"
#include "gpt/core/lock.h"
#include "gpt/core/log.h"
#include "gpt/core/printable.h"
#include "gpt/core/process.h"
#include "gpt/core/text_table.h"
#include "gpt/data/metadata.h"
#include "gpt/data/replacement.h"
#include "gpt/prepare/prepare.h"
#include "gpt/prepare/prepare_report.h"
#include "gpt/tokenizer/make_tokenizer.h"
#include "source_list.h"

namespace gpt::prepare {
namespace {

namespace fs = std::filesystem;

constexpr int kForm = 5;  // the form of what lies in the cache: other forms are prepared anew
constexpr const char* kHashIndex = "content_hashes";

std::string cache_root(const DataConfig& config) {
  if (!config.cache_dir.empty()) return config.cache_dir;
  if (const std::string folder = cache_folder(); !folder.empty()) return folder;
  throw Error(ExitCode::config, "data.cache_dir: there is no home folder to keep prepared text in; name a folder");
}

// char and bpe:N follow from the text, the latter from what is trained on of it; any other tokenizer is what it holds, wherever it lies.
std::string identity(const std::string& tokenizer) {
  if (tokenizer == "char") return tokenizer;
  if (tokenizer.starts_with("bpe:")) return tokenizer + " of the training side";
  return hash128(tokenizer::make_tokenizer(tokenizer, {})->to_json());
}

std::string size_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string texts(int64_t count) { return fmt::format("{} prepared text{}", count, count == 1 ? "" : "s"); }

using Open = std::function<data::Bin(const std::string& path)>;

class TextCache {
 public:
  TextCache(const std::string& input, const DataConfig& config, const std::optional<tokenizer::TextFormat>& chat_format,
            std::vector<int32_t> prefix, const Open& open)
      : config_(config),
        chat_format_(chat_format),
        prefix_(std::move(prefix)),
        open_(open),
        input_(input),
        root_(cache_root(config)),
        list_(find_sources({input}, "", root_)),
        content_(content_hash(input, list_.sources, root_ + "/" + kHashIndex)) {}

  data::Bin text(const std::string& saved_tokenizer) const {
    const std::string own = identity(config_.tokenizer);
    clear_cache_place(folder_for(own));
    if (saved_tokenizer.empty()) return prepared(folder_for(own), "");
    const std::string hash = hash128(saved_tokenizer);
    // A run that is resumed finds what it made when it began.
    if (tokenizer_hash(folder_for(own)) == hash) return prepared(folder_for(own), saved_tokenizer);
    return prepared(folder_for(hash), saved_tokenizer);
  }

 private:
  std::string folder_for(const std::string& tokenizer) const {
    return root_ + "/" +
           hash128(fmt::format("{} {} {} {} {} {} {}{}{}", kForm, content_, tokenizer, config_.text_field,
                               config_.document_separator, config_.validation_fraction, config_.max_chars,
                               identity_of_chat(), identity_of_prefix()));
  }

  // What else conversations become tokens by; nothing for texts.
  std::string identity_of_chat() const {
    if (!chat_format_) return "";
    const std::string format = nlohmann::ordered_json(*chat_format_).dump();
    return fmt::format(" {} {}{}", hash128(format + chat::kChatMl), config::name_of(config_.learn),
                       config_.trust_markup ? " trusted" : "");
  }

  std::string identity_of_prefix() const {
    return prefix_.empty() || chat_format_ ? "" : fmt::format(" behind {}", fmt::join(prefix_, " "));
  }

  // The tokenizer's hash in a finished entry; empty where there is none, or none that can be read.
  static std::string tokenizer_hash(const std::string& folder) {
    try {
      return data::read_metadata(folder + "/" + data::kMetadataFile).tokenizer_hash;
    } catch (const Error&) { return ""; }
  }

  data::Bin opened(const std::string& folder, std::shared_ptr<const void> in_use) const {
    data::Bin bin = open_(folder + "/" + data::kBinFile);
    bin.in_use = std::move(in_use);
    return bin;
  }

  // Nothing where there is nothing to use. `damage`: why, where something is there.
  std::optional<data::Bin> find(const std::string& folder, std::string& damage) const {
    try {
      data::finish_replacement(folder);  // which puts the file there that marks what is in use
      if (auto in_use = use_cache_entry(folder)) return opened(folder, std::move(in_use));
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
      damage = error.what();
    }
    return std::nullopt;
  }

  data::Bin prepared(const std::string& folder, const std::string& saved_tokenizer) const {
    clear_cache_place(folder);
    std::string damage;
    std::optional<data::Bin> bin = find(folder, damage);
    if (bin) announce(list_.left_out);  // as preparing it does
    if (!bin) bin = opened(folder, make(folder, saved_tokenizer, damage));
    const std::string files = describe_files(bin->metadata);
    if (!files.empty()) log::info(fmt::format("{}: {}", input_, files));
    warn_of_ends_as_text(bin->metadata);
    return *std::move(bin);
  }

  // Prepares it, unless another process has done that by the time this one holds the lock. What marks it as in use.
  std::shared_ptr<const void> make(const std::string& folder, const std::string& saved_tokenizer,
                                   std::string& damage) const {
    create_folders(root_);
    const FileLock lock(folder + ".lock", [this, said = false](const std::string& holder) mutable {
      if (!std::exchange(said, true)) log::info(fmt::format("Waiting for {}, which prepares {}", holder, input_));
      if (process::stop_signal() != 0) throw Error(ExitCode::interrupted, "interrupted while waiting for " + holder);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    });
    if (damage.empty()) {
      if (auto in_use = use_cache_entry(folder)) return in_use;
    } else if (const std::optional<data::Bin> bin = find(folder, damage)) {
      return bin->in_use;
    }
    prepare_entry(folder, saved_tokenizer, damage);
    auto in_use = use_cache_entry(folder);
    keep_below_limit();
    return in_use;
  }

  void prepare_entry(const std::string& folder, const std::string& saved_tokenizer, const std::string& damage) const {
    const std::string how = saved_tokenizer.empty() ? "the tokenizer " + config_.tokenizer : "the tokenizer of the run";
    if (damage.empty()) {
      log::info(fmt::format("Preparing {} with {}, once: it is kept in {}", input_, how, folder));
    } else {
      log::warn(fmt::format("{}; preparing {} anew with {}", damage, input_, how));
    }
    PrepareOptions options;
    options.inputs = {input_};
    options.cache_dir = root_;
    options.tokenizer = config_.tokenizer;
    options.saved_tokenizer = saved_tokenizer;
    options.text_field = config_.text_field;
    options.chat_format = chat_format_;
    options.document_prefix = prefix_;
    options.learn = config_.learn;
    options.trust_markup = config_.trust_markup;
    options.document_separator = config_.document_separator;
    options.validation_fraction = config_.validation_fraction;
    options.max_chars = config_.max_chars;
    options.force = true;  // all that lies in a folder of the cache is the cache's
    PrepareReport report;
    prepare(options, folder, std::ref(report));
    log::status("");
  }

  void keep_below_limit() const {
    if (config_.cache_limit == 0) return;
    const RemovedEntries removed = remove_cache_entries(root_, static_cast<int64_t>(config_.cache_limit * 1e9));
    if (removed.entries == 0) return;
    log::info(fmt::format("Removed {} ({}) from {}, used longest ago: data.cache_limit is {} GB",
                          texts(removed.entries), size_text(removed.bytes), root_, config_.cache_limit));
  }

  const DataConfig& config_;
  const std::optional<tokenizer::TextFormat>& chat_format_;
  const std::vector<int32_t> prefix_;
  const Open& open_;
  const std::string input_, root_;
  const SourceList list_;
  const std::string content_;
};

std::string as_json(const std::vector<CacheEntry>& entries) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const CacheEntry& entry : entries) {
    const auto seconds = static_cast<std::time_t>(entry.last_used / 1'000'000'000);
    list.push_back({{"path", entry.path},
                    {"bytes", entry.bytes},
                    {"last_used", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(seconds))},
                    {"text", entry.text}});
  }
  return nlohmann::ordered_json{{"cache", list}}.dump(2, ' ', /*ensure_ascii=*/true,
                                                      nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace

std::string usable_cache(const DataConfig& config, const std::string& instead) {
  if (!config.cache_dir.empty()) return config.cache_dir;
  const std::string root = cache_folder();
  if (root.empty()) return instead;
  std::error_code error;
  fs::create_directories(root, error);
  if (!error && access(root.c_str(), W_OK | X_OK) == 0) return "";
  if (!error) error = {errno, std::generic_category()};
  log::info(fmt::format("{} cannot be written ({}): prepared text is kept in {}", root, error.message(), instead));
  return instead;
}

bool holds_conversations(const std::string& input, const DataConfig& config) {
  return conversations_in(find_sources({input}, "", cache_root(config)).sources, config.text_field).has_value();
}

data::Bin prepared_text(const std::string& input, const DataConfig& config, const std::string& saved_tokenizer,
                        const std::optional<tokenizer::TextFormat>& chat_format,
                        const std::optional<tokenizer::TextFormat>& format, const Open& open) {
  try {
    return TextCache(input, config, chat_format, format ? format->prefix : std::vector<int32_t>(), open)
        .text(saved_tokenizer);
  } catch (const Error& error) {
    log::status("");
    if (error.code() != ExitCode::disk) throw;
    const bool is_allowed = access(cache_root(config).c_str(), W_OK | X_OK) == 0;
    throw Error(ExitCode::disk, fmt::format("{}; prepared text is kept there: set data.cache_dir to a folder {}",
                                            error.what(), is_allowed ? "with room" : "that you may write to"));
  }
}

std::string describe_text_cache(const DataConfig& config, bool json) {
  const std::string root = cache_root(config);
  const std::vector<CacheEntry> entries = cache_entries(root);
  if (json) return as_json(entries);
  int64_t bytes = 0;
  for (const CacheEntry& entry : entries) bytes += entry.bytes;
  const std::string limit = config.cache_limit == 0 ? "none" : fmt::format("{} GB", config.cache_limit);
  TextTable table{{{TextColumn::right, 9}, {}, {}}};
  for (const CacheEntry& entry : entries) {
    const auto seconds = static_cast<std::time_t>(entry.last_used / 1'000'000'000);
    table.rows.push_back({size_text(entry.bytes), fmt::format("last used {:%Y-%m-%d %H:%M}", fmt::localtime(seconds)),
                          fmt::format("{}  in {}", entry.text.empty() ? "(unfinished)" : printable_line(entry.text),
                                      fs::path(entry.path).filename().string())});
  }
  return fmt::format("{}: {}, {} (data.cache_limit: {})\n", printable_line(root), texts(std::ssize(entries)),
                     size_text(bytes), limit) +
         table.text();
}

std::string clear_text_cache(const DataConfig& config) {
  const std::string root = cache_root(config);
  const RemovedEntries removed = remove_cache_entries(root, /*limit=*/-1);
  std::error_code ignored;
  fs::remove(root + "/" + kHashIndex, ignored);
  std::string line = fmt::format("{}: removed {} ({})", root, texts(removed.entries), size_text(removed.bytes));
  if (removed.kept > 0) line += fmt::format("; {} in use stay{}", removed.kept, removed.kept == 1 ? "s" : "");
  return line;
}

}  // namespace gpt::prepare
