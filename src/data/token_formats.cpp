// The formats of token files that other programs write.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/core/log.h"
#include "gpt/data/llmc_format.h"
#include "gpt/data/token_file.h"
#include "stored_ids.h"

namespace gpt::data {
namespace {

File map(const std::string& path) { return std::make_shared<const MappedFile>(path, ExitCode::data); }

template <class... Arguments>
[[noreturn]] void fail(const std::string& path, fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  gpt::fail(path, fmt::format(text, std::forward<Arguments>(arguments)...));
}

// Numbers of a header need not be aligned.
template <class Number>
Number number_at(const std::byte* data, uint64_t offset) {
  Number value;
  std::memcpy(&value, data + offset, sizeof value);
  return value;
}

// Ids of two or four bytes have zeros and other control characters among them.
bool is_text(std::span<const std::byte> bytes) {
  constexpr size_t kRead = 4096, kLeast = 64;
  const auto is_printed = [](std::byte byte) {
    const auto c = static_cast<unsigned char>(byte);
    return c >= 0x20 || c == '\n' || c == '\r' || c == '\t';
  };
  return bytes.size() >= kLeast && std::ranges::all_of(bytes.first(std::min(bytes.size(), kRead)), is_printed);
}

// ---- llm.c ----

// The version whose magic number the file begins with; nullptr where it is none of llm.c's.
const llmc::Version* llmc_version(const File& file) {
  if (file->bytes().size() < llmc::kHeaderBytes) return nullptr;
  const auto magic = number_at<int32_t>(file->bytes().data(), 0);
  return magic == llmc::kGpt2.magic ? &llmc::kGpt2 : magic == llmc::kLlama3.magic ? &llmc::kLlama3 : nullptr;
}

Tokens open_llmc(const std::string& path, const File& file, const llmc::Version& version) {
  const std::byte* data = file->bytes().data();
  if (const auto number = number_at<int32_t>(data, 4); number != version.number) {
    fail(path, "byte 4: version {} of llm.c's header; with this magic number only {} is known", number, version.number);
  }
  // llm.c reads this field as int32; where a bin has more tokens than that, the same bits count to 2^32.
  const int64_t count = number_at<uint32_t>(data, 8);
  const auto bytes = static_cast<int64_t>(file->bytes().size() - llmc::kHeaderBytes);
  if (bytes != count * version.width) {
    fail(path,
         "byte 8: the header announces {} tokens of {} bytes, but {} bytes follow it; the file is truncated or not "
         "finished",
         count, version.width, bytes);
  }
  return {file, data + llmc::kHeaderBytes, count, version.width};
}

// ---- Megatron: FILE.idx describes the sequences in FILE.bin ----

constexpr std::string_view kMegatronMagic{"MMIDIDX\0\0", 9};
constexpr uint64_t kMegatronHeaderBytes = kMegatronMagic.size() + 8 + 1 + 8 + 8;

struct MegatronIndex {
  int width;
  uint64_t sequences, documents;
  const std::byte *lengths, *pointers, *document_starts;  // int32 and int64 each, in this order in the file
};

int megatron_width(const std::string& path, uint8_t code) {
  constexpr uint8_t kInt32 = 4, kUint16 = 8;
  if (code == kUint16) return 2;
  if (code == kInt32) return 4;
  fail(path, "byte 17: dtype code {}; only {} (uint16) and {} (int32) are known", code, kUint16, kInt32);
}

MegatronIndex read_index(const std::string& path, std::span<const std::byte> bytes) {
  const std::byte* data = bytes.data();
  if (bytes.size() < kMegatronHeaderBytes || std::memcmp(data, kMegatronMagic.data(), kMegatronMagic.size()) != 0) {
    fail(path, "byte 0: not an index of Megatron's, which starts with MMIDIDX and a header of {} bytes",
         kMegatronHeaderBytes);
  }
  if (const auto version = number_at<uint64_t>(data, 9); version != 1) {
    fail(path, "byte 9: version {} of Megatron's index; only 1 is known", version);
  }
  MegatronIndex index{};
  index.width = megatron_width(path, number_at<uint8_t>(data, 17));
  index.sequences = number_at<uint64_t>(data, 18);
  index.documents = number_at<uint64_t>(data, 26);  // entries of the last array: one more than there are documents
  const uint64_t rest = bytes.size() - kMegatronHeaderBytes;
  // Counts are compared before they are multiplied: they may be anything.
  if (index.sequences > rest / 12 || index.documents > rest / 8 || index.sequences * 12 + index.documents * 8 != rest) {
    fail(path, "byte 18: {} sequences and {} document marks do not take the {} bytes after the header", index.sequences,
         index.documents, rest);
  }
  index.lengths = data + kMegatronHeaderBytes;
  index.pointers = index.lengths + index.sequences * 4;
  index.document_starts = index.pointers + index.sequences * 8;
  return index;
}

// Checks every entry. Returns the number of tokens, and whether the sequences lie in the bin in order and without gaps.
std::pair<int64_t, bool> check_index(const std::string& path, const MegatronIndex& index, uint64_t bin_bytes) {
  uint64_t tokens = 0, expected = 0;
  bool contiguous = true;
  for (uint64_t i = 0; i < index.sequences; ++i) {
    const auto length = number_at<int32_t>(index.lengths, i * 4);
    if (length < 0) fail(path, "sequence {} has a length of {}", i, length);
    const auto pointer = number_at<int64_t>(index.pointers, i * 8);
    const uint64_t bytes = static_cast<uint64_t>(length) * index.width;
    if (pointer < 0 || pointer % index.width != 0 || static_cast<uint64_t>(pointer) > bin_bytes ||
        bytes > bin_bytes - static_cast<uint64_t>(pointer)) {
      fail(path, "sequence {} lies at byte {} with {} tokens of {} bytes, which the bin of {} bytes does not hold", i,
           pointer, length, index.width, bin_bytes);
    }
    contiguous = contiguous && static_cast<uint64_t>(pointer) == expected;
    expected += bytes;
    // Nothing writes such a pair, and a small one could ask for any amount of memory.
    if (expected > bin_bytes) {
      fail(path, "sequence {} overlaps others: up to it they have {} bytes, but the bin has {}", i, expected,
           bin_bytes);
    }
    tokens += static_cast<uint64_t>(length);
  }
  int64_t before = 0;
  for (uint64_t i = 0; i < index.documents; ++i) {
    const auto start = number_at<int64_t>(index.document_starts, i * 8);
    if (start < before || static_cast<uint64_t>(start) > index.sequences || (i == 0 && start != 0)) {
      fail(path, "document mark {} is {}; marks must rise from 0 to at most the number of sequences, {}", i, start,
           index.sequences);
    }
    before = start;
  }
  return {static_cast<int64_t>(tokens), contiguous && expected == bin_bytes};
}

Tokens in_order(const MegatronIndex& index, const File& bin, int64_t tokens) {
  const auto copy = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(tokens) * index.width);
  std::byte* out = copy->data();
  for (uint64_t i = 0; i < index.sequences; ++i) {
    const size_t bytes = static_cast<size_t>(number_at<int32_t>(index.lengths, i * 4)) * index.width;
    if (bytes > 0) std::memcpy(out, bin->bytes().data() + number_at<int64_t>(index.pointers, i * 8), bytes);
    out += bytes;
  }
  return {copy, copy->data(), tokens, index.width};
}

std::string index_path(const std::string& path) {
  return std::filesystem::path(path).replace_extension(".idx").string();
}

Tokens open_megatron(const std::string& path) {
  const std::string index_file = index_path(path);
  const File index_bytes = map(index_file), bin = map(path);
  const MegatronIndex index = read_index(index_file, index_bytes->bytes());
  const auto [tokens, contiguous] = check_index(index_file, index, bin->bytes().size());
  // Only where sequences were left out or reordered is there something to copy.
  return contiguous ? Tokens(bin, bin->bytes().data(), tokens, index.width) : in_order(index, bin, tokens);
}

// ---- nothing but ids ----

// Eight bytes with the length of a JSON object, and the object. As ids the length would be a small number and several zeros.
bool has_safetensors_header(std::string_view text) {
  constexpr uint64_t kLongest = 100'000'000;
  if (text.size() < 10) return false;
  const auto length = number_at<uint64_t>(reinterpret_cast<const std::byte*>(text.data()), 0);
  if (length < 2 || length > kLongest || length > text.size() - 8 || text[8] != '{') return false;
  const size_t last = text.substr(8, length).find_last_not_of(' ');
  return text[8 + last] == '}';
}

// Files that ids may lie in, but are not.
const char* wrapping(std::span<const std::byte> bytes) {
  constexpr std::pair<std::string_view, const char*> kFormats[] = {
      {"\x1f\x8b\x08", "packed with gzip; unpack it (gzip -d)"},
      {"\x28\xb5\x2f\xfd", "packed with zstd; unpack it (zstd -d)"},
      {"PK\x03\x04", "an archive such as .npz or .pt; write the array in it with .tofile() or np.save()"},
      {"PAR1", "a Parquet table; write its ids with .tofile()"},
      {"ARROW1", "an Arrow table; write its ids with .tofile()"},
      {"MMIDIDX", "the index of Megatron's tokens; name the .bin beside it"},
      {"GGUF", "a model for llama.cpp, not token ids"},
  };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const auto& [magic, what] : kFormats) {
    if (text.starts_with(magic)) return what;
  }
  if (text.size() > 262 && text.substr(257, 5) == "ustar") return "a tar archive; unpack it";
  if (has_safetensors_header(text)) return "weights in the format safetensors, not token ids";
  return nullptr;
}

Tokens open_raw(const std::string& path, const File& file, std::optional<int> width_bytes, int64_t vocab_size) {
  if (is_text(file->bytes())) fail(path, "is text, not token ids; to train on it, give it as data.text (--data FILE)");
  if (const char* what = wrapping(file->bytes())) fail(path, "it is {}", what);
  if (width_bytes) return stored_ids(path, file, 0, *width_bytes);
  const int width = width_for(vocab_size), evident = evident_width(file->bytes());
  if (evident <= width) return stored_ids(path, file, 0, width);
  log::info(
      fmt::format("{}: its ids are read as ids of {} bits, because the upper half of each is 0", path, 8 * evident));
  return stored_ids(path, file, 0, evident);
}

}  // namespace

TokenFile open_token_file(const std::string& path, std::optional<int> width_bytes, int64_t vocab_size) {
  std::error_code ignored;
  const bool is_bin = std::filesystem::path(path).extension() == ".bin";
  TokenFile file;
  if (is_bin && std::filesystem::exists(index_path(path), ignored)) {
    file = {open_megatron(path), TokenFormat::megatron};
  } else if (const File bytes = map(path); const llmc::Version* version = llmc_version(bytes)) {
    file = {open_llmc(path, bytes, *version), TokenFormat::llmc};
  } else if (const auto tokens = open_array(path, bytes)) {
    file = {*tokens, TokenFormat::array};
  } else {
    return {open_raw(path, bytes, width_bytes, vocab_size), TokenFormat::raw};
  }
  if (width_bytes && *width_bytes != file.tokens.width()) {
    fail(path, "its header says ids of {} bits, but its metadata says {} bits", 8 * file.tokens.width(),
         8 * *width_bytes);
  }
  return file;
}

}  // namespace gpt::data
