#include "gpt/exchange/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/printable.h"

namespace gpt::exchange {
namespace {

using nlohmann::json;

constexpr uint64_t kLongestHeader = 100'000'000;  // bytes: the format's own limit
constexpr uint64_t kPrefix = 8;                   // bytes of the header's length
constexpr int kDeepest = 3;                       // a list within a tensor within the header

struct Dtype {
  std::string_view name;
  int64_t bytes;
};
constexpr Dtype kDtypes[] = {{"F64", 8},  {"I64", 8},     {"U64", 8},     {"F32", 4}, {"I32", 4},
                             {"U32", 4},  {"F16", 2},     {"BF16", 2},    {"I16", 2}, {"U16", 2},
                             {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I8", 1},  {"U8", 1}};

std::string cut(std::string_view text) {
  constexpr size_t kLongest = 100;
  return shortened(printable_line(text), kLongest);
}

std::string shown(const json& value) { return cut(value.dump(-1, ' ', false, json::error_handler_t::replace)); }

// A header on its way from bytes to tensors. `where` begins every message.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::span<const std::byte> values, const std::string& where)
      : values_(values), where_(where) {
    parse(text);
  }

  std::vector<StoredTensor> tensors() {
    std::vector<StoredTensor> found;
    for (const auto& [name, entry] : header_.items()) {
      if (name != "__metadata__") found.push_back(tensor(name, entry));
    }
    require_no_gaps(found);
    return found;  // sorted, as the keys of a JSON object are
  }

  std::map<std::string, std::string> metadata() const {
    std::map<std::string, std::string> found;
    const auto entry = header_.find("__metadata__");
    if (entry == header_.end()) return found;
    if (!entry->is_object()) refuse("its __metadata__ is {}; an object of strings is needed", shown(*entry));
    for (const auto& [key, value] : entry->items()) {
      if (!value.is_string()) refuse("its __metadata__ has {} under '{}'; a string is needed", shown(value), cut(key));
      found[key] = value.get<std::string>();
    }
    return found;
  }

 private:
  template <typename... Arguments>
  [[noreturn]] void refuse(fmt::format_string<Arguments...> text, Arguments&&... arguments) const {
    throw Error(ExitCode::checkpoint,
                fmt::format("{} cannot be used: {}", where_, fmt::format(text, std::forward<Arguments>(arguments)...)));
  }

  // The parser alone would let the last of two equal names win, and nest without an end.
  void parse(std::string_view text) {
    std::set<std::string> names;
    try {
      header_ = json::parse(text, [&](int depth, json::parse_event_t event, json& value) {
        if (depth > kDeepest) refuse("its header is nested more than {} levels deep", kDeepest);
        if (event == json::parse_event_t::key && depth == 1 && !names.insert(value.get<std::string>()).second)
          refuse("its header names tensor '{}' twice", cut(value.get<std::string>()));
        return true;
      });
    } catch (const json::exception&) { refuse("its header is not JSON"); }
    if (!header_.is_object()) refuse("its header is {}; an object is needed", header_.type_name());
  }

  uint64_t count(const std::string& name, const json& value) const {
    if (value.is_number_unsigned()) return value.get<uint64_t>();
    refuse("tensor '{}' has {} where a whole number is needed", cut(name), shown(value));
  }

  const json& list(const std::string& name, const json& entry, const char* key) const {
    const json& value = entry[key];
    if (!value.is_array()) refuse("{} of tensor '{}' is {}; a list is needed", key, cut(name), shown(value));
    return value;
  }

  std::vector<int64_t> shape(const std::string& name, const json& entry) const {
    std::vector<int64_t> sizes;
    for (const json& size : list(name, entry, "shape")) {
      const uint64_t value = count(name, size);
      if (value > std::numeric_limits<int64_t>::max()) refuse("tensor '{}' has a dimension of {}", cut(name), value);
      sizes.push_back(static_cast<int64_t>(value));
    }
    return sizes;
  }

  StoredTensor tensor(const std::string& name, const json& entry) const {
    const bool is_complete = entry.is_object() && entry.size() == 3 && entry.contains("dtype") &&
                             entry.contains("shape") && entry.contains("data_offsets");
    if (!is_complete) refuse("tensor '{}' is {}; dtype, shape and data_offsets are needed", cut(name), shown(entry));
    const std::string dtype = entry["dtype"].is_string() ? entry["dtype"].get<std::string>() : "";
    int64_t bytes = bytes_of_dtype(dtype);
    if (bytes == 0) refuse("tensor '{}' has the unknown dtype {}", cut(name), shown(entry["dtype"]));

    StoredTensor found{{name, dtype, shape(name, entry)}, {}};
    bool overflows = false;
    for (const int64_t size : found.shape) overflows |= __builtin_mul_overflow(bytes, size, &bytes);
    const json& offsets = list(name, entry, "data_offsets");
    if (offsets.size() != 2) refuse("data_offsets of tensor '{}' is {}; two are needed", cut(name), shown(offsets));
    const uint64_t begin = count(name, offsets[0]), end = count(name, offsets[1]);
    if (begin > end || end > values_.size()) {
      refuse("tensor '{}' lies from byte {} to {} of {}: the file is damaged or cut off", cut(name), begin, end,
             values_.size());
    }
    if (overflows || end - begin != static_cast<uint64_t>(bytes)) {
      refuse("tensor '{}' has {} bytes, which cannot be {} of shape {}", cut(name), end - begin, dtype,
             shown(entry["shape"]));
    }
    found.bytes = values_.subspan(begin, end - begin);
    return found;
  }

  void require_no_gaps(const std::vector<StoredTensor>& tensors) const {
    std::vector<const StoredTensor*> order;
    for (const StoredTensor& tensor : tensors) order.push_back(&tensor);
    const auto begin_of = [&](const StoredTensor* tensor) {
      return static_cast<uint64_t>(tensor->bytes.data() - values_.data());
    };
    std::sort(order.begin(), order.end(), [&](const StoredTensor* a, const StoredTensor* b) {
      return std::pair(begin_of(a), a->bytes.size()) < std::pair(begin_of(b), b->bytes.size());
    });
    uint64_t end = 0;
    for (const StoredTensor* tensor : order) {
      if (begin_of(tensor) != end)
        refuse("tensor '{}' begins at byte {} instead of {}: tensors overlap or leave a gap", cut(tensor->name),
               begin_of(tensor), end);
      end += tensor->bytes.size();
    }
    if (end != values_.size()) refuse("its tensors end at byte {}, and its values at {}", end, values_.size());
  }

  std::span<const std::byte> values_;
  const std::string& where_;
  json header_;
};

// The bytes of the header's JSON, and where the values begin.
std::string_view header_text(std::span<const std::byte> bytes, const std::string& where) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto refuse = [&](const std::string& why) {
    throw Error(ExitCode::checkpoint, where + " cannot be used: " + why);
  };
  if (text.starts_with("version https://git-lfs"))
    refuse("it is a git-lfs pointer; fetch the file itself with `git lfs pull`");
  if (bytes.size() < kPrefix) refuse(fmt::format("it has {} bytes, and a safetensors file at least 8", bytes.size()));
  uint64_t length;
  std::memcpy(&length, bytes.data(), sizeof length);  // little-endian, as this machine
  if (length > kLongestHeader) refuse(fmt::format("it is no safetensors file: its header would have {} bytes", length));
  if (length > bytes.size() - kPrefix)
    refuse(fmt::format("its header has {} bytes, and the file ends after {}: it is cut off", length,
                       bytes.size() - kPrefix));
  return text.substr(kPrefix, length);
}

uint64_t bytes_of(const TensorForm& tensor) {
  auto bytes = static_cast<uint64_t>(bytes_of_dtype(tensor.dtype));
  for (const int64_t size : tensor.shape) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

std::vector<uint64_t> sizes_of(const std::vector<TensorForm>& tensors) {
  std::vector<uint64_t> sizes;
  for (const TensorForm& tensor : tensors) sizes.push_back(bytes_of(tensor));
  return sizes;
}

std::string header_of(const std::vector<TensorForm>& tensors) {
  using nlohmann::ordered_json;
  ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  auto& entries = header.get_ref<ordered_json::object_t&>();  // its own insertion searches all members
  uint64_t end = 0;
  for (const TensorForm& tensor : tensors) {
    const uint64_t begin = std::exchange(end, end + bytes_of(tensor));
    entries.emplace_back(tensor.name, ordered_json{{"dtype", tensor.dtype},
                                                   {"shape", tensor.shape},
                                                   {"data_offsets", {begin, end}}});
  }
  std::string text = header.dump();
  text.append((kPrefix - text.size() % kPrefix) % kPrefix, ' ');  // so that the values begin at a multiple of 8
  return text;
}

}  // namespace

int64_t bytes_of_dtype(std::string_view dtype) {
  const auto found =
      std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const Dtype& known) { return known.name == dtype; });
  return found == std::end(kDtypes) ? 0 : found->bytes;
}

SafetensorsReader::SafetensorsReader(const std::string& path) : path_(path), file_(path, ExitCode::checkpoint) {
  const std::string_view text = header_text(file_.bytes(), path);
  HeaderParser header(text, file_.bytes().subspan(kPrefix + text.size()), path_);
  tensors_ = header.tensors();
  metadata_ = header.metadata();
}

const StoredTensor* SafetensorsReader::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors_.begin(), tensors_.end(), name,
                       [](const StoredTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<TensorForm>& sorted)
    : SafetensorsWriter(path, header_of(sorted), sizes_of(sorted)) {}

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::string& header, std::vector<uint64_t> sizes)
    : file_(path, std::accumulate(sizes.begin(), sizes.end(), kPrefix + header.size())), sizes_(std::move(sizes)) {
  const uint64_t length = header.size();
  char prefix[kPrefix];
  std::memcpy(prefix, &length, sizeof prefix);
  file_.write(std::string_view(prefix, sizeof prefix));
  file_.write(header);
}

void SafetensorsWriter::add(std::span<const std::byte> bytes) {
  if (next_ >= sizes_.size() || bytes.size() != sizes_[next_])
    throw std::logic_error("safetensors: not the next tensor's bytes");
  ++next_;
  file_.write(bytes);
}

void SafetensorsWriter::commit() {
  if (next_ != sizes_.size()) throw std::logic_error("safetensors: tensors are missing");
  file_.commit();
}

}  // namespace gpt::exchange
