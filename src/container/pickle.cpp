#include "gpt/container/pickle.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "gpt/core/error.h"
#include "gpt/core/utf8.h"

namespace gpt {
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
  out_ += kMark;
  for (const int64_t value : values) integer(value);
  out_ += kTuple;
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

std::string PickleWriter::finish() { return std::move(out_) + kStop; }

}  // namespace gpt
