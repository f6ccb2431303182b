#include "gpt/data/prepare.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "bin_writer.h"
#include "chunk_encoder.h"
#include "document_reader.h"
#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/hash.h"
#include "gpt/data/token_file.h"
#include "gpt/tokenizer/bpe.h"
#include "gpt/tokenizer/bpe_trainer.h"
#include "gpt/tokenizer/tokenizer.h"
#include "gpt/tokenizer/utf8.h"
#include "ordered_prefetcher.h"
#include "source_list.h"

namespace gpt {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& message) { throw Error(ExitCode::config, message); }

void validate(const PrepareOptions& options) {
  if (options.inputs.empty()) refuse("nothing to read: name files, folders or patterns, or - for standard input");
  if (!(options.validation_fraction >= 0 && options.validation_fraction < 1)) {
    refuse(fmt::format("validation_fraction must be from 0 to below 1, got {}", options.validation_fraction));
  }
  if (options.min_frequency < 0) refuse(fmt::format("min_frequency must be 0 or more, got {}", options.min_frequency));
  if (options.max_chars < 0) refuse(fmt::format("max_chars must be 0 or more, got {}", options.max_chars));
  if (options.threads < 0) refuse(fmt::format("threads must be 0 or more, got {}", options.threads));
}

// Sets a flag on the way out of a scope.
struct SetAtEnd {
  std::atomic<bool>& flag;
  ~SetAtEnd() { flag = true; }
};

class Preparation {
 public:
  Preparation(const PrepareOptions& options, const std::string& folder,
              const std::function<bool(const PrepareProgress&)>& progress)
      : options_(options), folder_(folder), progress_(progress), input_(find_sources(options.inputs, folder)) {}

  Metadata run();

 private:
  std::vector<std::string> output_files() const;
  void refuse_foreign_output() const;
  void require_space() const;
  void spool_streams();
  std::unique_ptr<const Tokenizer> tokenizer();
  std::string characters();
  BpeModel trained_bpe(int64_t vocab_size);
  Metadata encode(const Tokenizer& tokenizer, BinWriter& writer);
  void commit(const std::string& tokenizer, BinWriter& writer, const Metadata& metadata) const;

  void report(const PrepareProgress& progress) const {
    if (progress_ && !progress_(progress)) throw Error(ExitCode::interrupted, "interrupted; nothing was written to " + folder_);
  }

  DocumentReader reader(std::function<size_t(std::string_view)> last_cut) {
    const auto waiting = [this] {
      if (stop_) throw Error(ExitCode::interrupted, "interrupted");
    };
    return DocumentReader(input_.sources, {std::move(last_cut), options_.text_field, options_.max_chars, waiting});
  }

  // Calls `work` on the chunks of the input on all threads, and `take` on this one with the results, in their order.
  template <class Work, class Take>
  void for_each_chunk(const char* stage, DocumentReader& reader, Work&& work, Take&& take);

  const PrepareOptions& options_;
  const std::string& folder_;
  const std::function<bool(const PrepareProgress&)>& progress_;
  SourceList input_;
  std::vector<std::unique_ptr<AtomicFile>> spools_;  // standard input, where it has to be read twice; never committed
  std::atomic<bool> stop_ = false;
};

template <class Work, class Take>
void Preparation::for_each_chunk(const char* stage, DocumentReader& reader, Work&& work, Take&& take) {
  using Result = std::invoke_result_t<Work, Chunk>;
  const int64_t threads = options_.threads > 0 ? options_.threads : std::max(1u, std::thread::hardware_concurrency());
  uint64_t total = 0;
  bool is_known = true;
  for (const Source& source : input_.sources) {
    total += static_cast<uint64_t>(source.bytes);
    is_known = is_known && !source.stream;
  }

  // The threads read in turn: what is the k-th chunk of the input is the pipeline's k-th item.
  stop_ = false;
  std::mutex mutex;
  std::condition_variable turn;
  int64_t next_to_read = 0;
  bool at_end = false;
  const auto read = [&](int64_t index) -> std::optional<Chunk> {
    std::unique_lock lock(mutex);
    turn.wait(lock, [&] { return next_to_read == index; });
    ++next_to_read;
    // Set first: it stays so where next() throws.
    std::optional<Chunk> chunk;
    if (!std::exchange(at_end, true)) {
      try {
        chunk = reader.next();
      } catch (...) {
        turn.notify_all();
        throw;
      }
      at_end = !chunk;
    }
    turn.notify_all();
    return chunk;
  };
  OrderedPrefetcher<std::optional<Result>> pipeline(
      threads, 2 * threads, std::numeric_limits<int64_t>::max(), [&](int64_t index) -> std::optional<Result> {
        std::optional<Chunk> chunk = read(index);
        if (!chunk) return std::nullopt;
        return work(reader.parsed(std::move(*chunk)));
      });
  const SetAtEnd wake_readers{stop_};  // ahead of the pipeline's threads, which it waits for

  constexpr std::chrono::milliseconds kPatience(100);
  for (;;) {
    report({stage, reader.consumed(), is_known ? total : 0});
    std::optional<std::optional<Result>> result = pipeline.next(kPatience);
    if (!result) continue;
    if (!*result) break;
    take(std::move(**result));
  }
}

Metadata Preparation::run() {
  trained_vocabulary(options_.tokenizer);
  refuse_foreign_output();
  require_space();
  const std::unique_ptr<const Tokenizer> tokenizer = this->tokenizer();
  const int width = width_for(tokenizer->vocab_size());
  if (options_.format == BinFormat::nanogpt && width > 2) {
    refuse(fmt::format("a vocabulary of {} does not fit the 16-bit ids of nanogpt bins; use another --format",
                       tokenizer->vocab_size()));
  }
  BinWriter writer(folder_, options_.format, width, options_.validation_fraction);
  Metadata metadata = encode(*tokenizer, writer);
  const std::string json = tokenizer->to_json();
  metadata.tokenizer_hash = hash128(json);
  commit(json, writer, metadata);
  return metadata;
}

std::vector<std::string> Preparation::output_files() const {
  std::vector<std::string> files = BinWriter::file_names(options_.format);
  files.push_back(kTokenizerFile);
  if (options_.format == BinFormat::prepared) files.push_back(kMetadataFile);
  return files;
}

// The metadata is written last, and tells a whole former output from files that came otherwise.
void Preparation::refuse_foreign_output() const {
  if (options_.force) return;
  if (options_.format == BinFormat::prepared) {
    try {
      read_metadata(folder_ + "/" + kMetadataFile);
      return;
    } catch (const Error&) {
    }
  }
  for (const std::string& name : output_files()) {
    const std::string path = folder_ + "/" + name;
    std::error_code none;
    if (fs::exists(fs::symlink_status(path, none))) {
      refuse(fmt::format("{} is in the way, and may not be gpt-prepare's; --force replaces it, or choose another --output", path));
    }
  }
}

// A floor, so that nothing is refused that would fit: packed text counts twice, and few texts have above six bytes a token.
void Preparation::require_space() const {
  const double bytes_per_token = options_.tokenizer == "byte" ? 1 : options_.tokenizer == "char" ? 3 : 6;
  double needed = 0;
  for (const Source& source : input_.sources) needed += source.bytes * (source.packing == Packing::none ? 1 : 2);
  if (options_.max_chars > 0) needed = std::min(needed, static_cast<double>(options_.max_chars));
  needed *= sizeof(uint16_t) / bytes_per_token;
  const uint64_t free = free_disk_space(folder_);
  if (needed <= static_cast<double>(free)) return;
  throw Error(ExitCode::disk, fmt::format("{}: the ids of this input need {:.1f} GB at least, and {:.1f} GB are free; make room "
                                          "or choose another --output", folder_, needed / 1e9, static_cast<double>(free) / 1e9));
}

void Preparation::spool_streams() {
  for (Source& source : input_.sources) {
    if (!source.stream) continue;
    auto spool = std::make_unique<AtomicFile>(folder_ + "/standard_input");
    std::atomic<uint64_t> consumed = 0;
    Source packed = source;
    packed.packing = Packing::none;
    const auto stream = open_source(packed, consumed, [&] { report({"reading", consumed, 0}); });
    std::vector<char> block(1 << 16);
    while (const size_t count = stream->read(block.data(), block.size())) {
      spool->write(std::string_view(block.data(), count));
      report({"reading", consumed, 0});
    }
    source.path = spool->unfinished_path();
    source.bytes = static_cast<int64_t>(spool->size());
    source.stream = false;
    spools_.push_back(std::move(spool));
  }
}

std::unique_ptr<const Tokenizer> Preparation::tokenizer() {
  if (options_.tokenizer == "char") {
    spool_streams();
    return make_tokenizer("char", characters());
  }
  if (const auto vocab_size = trained_vocabulary(options_.tokenizer)) {
    spool_streams();
    return std::make_unique<BpeTokenizer>(trained_bpe(*vocab_size), options_.tokenizer);
  }
  return make_tokenizer(options_.tokenizer, {});
}

// Every character of the input, once.
std::string Preparation::characters() {
  std::vector<std::atomic<bool>> seen(utf8::kCodePoints);
  DocumentReader input = reader(utf8::last_character);
  const auto note = [&](const Chunk& chunk) {
    size_t offset = 0;
    for (const DocumentPart& part : chunk.parts) {
      const std::string_view text = std::string_view(chunk.text).substr(0, part.end);
      for (const size_t begin = offset; offset < text.size();) {
        const auto [kind, bytes, value] = utf8::scan(text, offset);
        if (kind != utf8::Scan::whole) {
          throw Error(ExitCode::data, fmt::format("{}: 0x{:02X} is not valid UTF-8; convert the text (iconv -f LATIN1 -t UTF-8) "
                                                  "or use the tokenizer byte or bpe:N",
                                                  input.place(part, offset - begin), static_cast<unsigned char>(text[offset])));
        }
        if (!seen[value].load(std::memory_order_relaxed)) seen[value].store(true, std::memory_order_relaxed);
        offset += bytes;
      }
    }
    return true;
  };
  for_each_chunk("reading", input, note, [](bool) {});
  std::string characters;
  for (char32_t value = 0; value < utf8::kCodePoints; ++value) {
    if (seen[value]) utf8::append(characters, value);
  }
  return characters;
}

BpeModel Preparation::trained_bpe(int64_t vocab_size) {
  BpeTrainingOptions training;
  training.vocab_size = vocab_size;
  training.min_frequency = options_.min_frequency;
  training.threads = options_.threads;
  BpeTrainer trainer(training);
  DocumentReader input = reader([&](std::string_view text) { return last_piece_boundary(training.split, text); });
  for_each_chunk("reading", input, [](Chunk chunk) { return chunk; }, [&](const Chunk& chunk) {
    size_t begin = 0;
    for (const DocumentPart& part : chunk.parts) {
      trainer.add(std::string_view(chunk.text).substr(begin, part.end - begin));
      begin = part.end;
    }
  });
  return trainer.train([this](int64_t done, int64_t total) {
    const auto merges = [](int64_t count) { return static_cast<uint64_t>(count); };
    return !progress_ || progress_({"training the tokenizer", merges(done), merges(total), /*in_bytes=*/false});
  });
}

Metadata Preparation::encode(const Tokenizer& tokenizer, BinWriter& writer) {
  const ChunkEncoder encoder(tokenizer, options_);
  DocumentReader input = reader([&](std::string_view text) { return encoder.last_cut(text); });
  Metadata metadata;
  for_each_chunk("encoding", input, [&](const Chunk& chunk) { return encoder.encode(chunk, input); },
                 [&](const EncodedChunk& chunk) {
                   writer.append(chunk);
                   metadata.invalid_utf8_bytes += chunk.invalid_utf8_bytes;
                 });

  metadata.vocab_size = tokenizer.vocab_size();
  metadata.width_bytes = width_for(tokenizer.vocab_size());
  metadata.tokenizer = kTokenizerFile;
  writer.finish(tokenizer.text_bytes(), metadata);
  for (const Source& source : input.used()) {
    const int64_t bytes = source.stream && input_.sources.size() == 1 ? static_cast<int64_t>(input.consumed()) : source.bytes;
    metadata.sources.push_back({source.name, bytes});
  }
  metadata.skipped = input_.skipped;
  metadata.skipped.insert(metadata.skipped.end(), input.skipped().begin(), input.skipped().end());
  if (metadata.train.bytes + metadata.validation.bytes == 0) {
    throw Error(ExitCode::data, fmt::format("{}: there is no text in it ({} files read, {} passed over as binary or empty)",
                                            fmt::join(options_.inputs, " "), metadata.sources.size(), metadata.skipped.size()));
  }
  return metadata;
}

// The former metadata goes first and the new one comes last, so that it never describes another bin.
void Preparation::commit(const std::string& tokenizer, BinWriter& writer, const Metadata& metadata) const {
  AtomicFile tokenizer_file(folder_ + "/" + kTokenizerFile);
  tokenizer_file.write(tokenizer);
  AtomicFile metadata_file(folder_ + "/" + kMetadataFile);
  metadata_file.write(to_json(metadata));
  std::error_code none;
  fs::remove(folder_ + "/" + kMetadataFile, none);
  try {
    writer.commit();
    tokenizer_file.commit();
    if (options_.format == BinFormat::prepared) metadata_file.commit();
  } catch (...) {
    for (const std::string& name : output_files()) fs::remove(folder_ + "/" + name, none);
    throw;
  }
}

}  // namespace

Metadata prepare(const PrepareOptions& options, const std::string& output_dir,
                 const std::function<bool(const PrepareProgress&)>& progress) {
  validate(options);
  std::error_code none;
  const bool is_new = !fs::exists(output_dir, none);
  create_folders(output_dir);
  try {
    const FolderLock lock(output_dir, ExitCode::config, "--output");
    return Preparation(options, output_dir, progress).run();
  } catch (...) {
    if (is_new) rmdir(output_dir.c_str());  // where it is empty
    throw;
  }
}

}  // namespace gpt
