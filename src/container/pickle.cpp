#include "gpt/container/pickle.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/utf8.h"

namespace gpt::container {
namespace {

// Opcodes, by their names in Python's pickletools.
constexpr char kMark = '(', kStop = '.', kReduce = 'R', kBinPersId = 'Q', kGlobal = 'c', kTuple = 't',
               kEmptyTuple = ')';
constexpr char kEmptyDict = '}', kSetItems = 'u', kNone = 'N', kNewTrue = '\x88', kNewFalse = '\x89';
constexpr char kBinInt = 'J', kLong1 = '\x8a', kBinFloat = 'G', kBinUnicode = 'X';

template <class Number>
std::string little_endian(Number value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// Bytes that are not UTF-8, as in old file names, become lone surrogates, which Python's os.fsencode() turns back.
std::string python_text(std::string_view value) {
  std::string text;
  for (size_t i = 0; i < value.size();) {
    if (const utf8::Scan found = utf8::scan(value, i); found.kind == utf8::Scan::whole) {
      text += value.substr(i, found.bytes);
      i += found.bytes;
    } else {
      const unsigned surrogate = 0xdc00u + static_cast<unsigned char>(value[i++]);
      text += '\xed';
      text += static_cast<char>(0x80 | ((surrogate >> 6) & 0x3f));
      text += static_cast<char>(0x80 | (surrogate & 0x3f));
    }
  }
  return text;
}

}  // namespace

void PickleWriter::begin_dict() { out_.append({kEmptyDict, kMark}); }

void PickleWriter::end_dict() { out_ += kSetItems; }

void PickleWriter::begin_tuple() { out_ += kMark; }

void PickleWriter::end_tuple() { out_ += kTuple; }

void PickleWriter::text(std::string_view value) {
  const std::string encoded = python_text(value);
  out_ += kBinUnicode + little_endian(static_cast<uint32_t>(encoded.size()));
  out_ += encoded;
}

void PickleWriter::integer(int64_t value) {
  if (std::in_range<int32_t>(value)) {
    out_ += kBinInt + little_endian(static_cast<int32_t>(value));
  } else {
    out_.append({kLong1, sizeof(value)});
    out_ += little_endian(value);
  }
}

void PickleWriter::real(double value) {
  std::string bytes = little_endian(value);
  std::reverse(bytes.begin(), bytes.end());  // the one big-endian value of the format
  out_ += kBinFloat + bytes;
}

void PickleWriter::boolean(bool value) { out_ += value ? kNewTrue : kNewFalse; }

void PickleWriter::none() { out_ += kNone; }

void PickleWriter::global(std::string_view module, std::string_view name) {
  out_ += kGlobal;
  out_.append(module).append("\n").append(name).append("\n");
}

void PickleWriter::integers(const std::vector<int64_t>& values) {
  begin_tuple();
  for (const int64_t value : values) integer(value);
  end_tuple();
}

// torch._utils._rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks)
void PickleWriter::tensor(std::string_view storage, std::string_view key, const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t count = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = count;
    count *= std::max<int64_t>(shape[i], 1);
  }
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();

  global("torch._utils", "_rebuild_tensor_v2");
  out_ += kMark;
  out_ += kMark;
  text("storage");
  global("torch", storage);
  text(key);
  text("cpu");
  integer(empty ? 0 : count);
  out_.append({kTuple, kBinPersId});
  integer(0);
  integers(shape);
  integers(strides);
  boolean(false);
  global("collections", "OrderedDict");
  out_.append({kEmptyTuple, kReduce});
  out_.append({kTuple, kReduce});
}

namespace {

constexpr std::string_view kProtocol = "\x80\x02";

// "module\nname\n" of what a tensor is made with.
bool is_known_global(std::string_view text) {
  if (text == "torch._utils\n_rebuild_tensor_v2\n" || text == "collections\nOrderedDict\n") return true;
  constexpr std::string_view kStorage = "torch\n", kEnd = "Storage\n";
  if (!text.starts_with(kStorage) || !text.ends_with(kEnd)) return false;
  text.remove_prefix(kStorage.size()), text.remove_suffix(kEnd.size());
  return std::all_of(text.begin(), text.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; });
}

// The length of what follows an opcode, or none where it is not the writer's.
std::optional<size_t> argument_bytes(char opcode, std::string_view rest) {
  switch (opcode) {
    case kMark:
    case kReduce:
    case kBinPersId:
    case kTuple:
    case kEmptyTuple:
    case kEmptyDict:
    case kSetItems:
    case kNone:
    case kNewTrue:
    case kNewFalse: return 0;
    case kBinInt: return sizeof(int32_t);
    case kLong1: return 1 + sizeof(int64_t);
    case kBinFloat: return sizeof(double);
    case kBinUnicode: {
      uint32_t bytes = 0;
      if (rest.size() < sizeof bytes) return std::nullopt;
      std::memcpy(&bytes, rest.data(), sizeof bytes);
      return sizeof bytes + bytes;
    }
    case kGlobal: {
      const size_t module = rest.find('\n'), name = module == rest.npos ? rest.npos : rest.find('\n', module + 1);
      if (name == rest.npos || !is_known_global(rest.substr(0, name + 1))) return std::nullopt;
      return name + 1;
    }
    default: return std::nullopt;
  }
}

}  // namespace

bool is_plain_pickle(std::string_view pickle) {
  if (!pickle.starts_with(kProtocol)) return false;
  pickle.remove_prefix(kProtocol.size());
  while (!pickle.empty()) {
    const char opcode = pickle.front();
    pickle.remove_prefix(1);
    if (opcode == kStop) return pickle.empty();
    const auto bytes = argument_bytes(opcode, pickle);
    if (!bytes || *bytes > pickle.size()) return false;
    if (opcode == kLong1 && pickle.front() != sizeof(int64_t)) return false;
    pickle.remove_prefix(*bytes);
  }
  return false;
}

std::string PickleWriter::finish() { return std::move(out_) + kStop; }

}  // namespace gpt::container
