// data.pkl, the record that Python's torch.load(weights_only=True) reads: dicts of plain values and tensors, in pickle protocol 2. Our own
// reader never looks at what it says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpt::container {

// Inside a dict every value is preceded by its key:
//   pickle.begin_dict(); pickle.text("step"); pickle.integer(5); pickle.end_dict();
class PickleWriter {
 public:
  void begin_dict();
  void end_dict();
  void begin_tuple();
  void end_tuple();
  void text(std::string_view value);
  void integer(int64_t value);
  void real(double value);
  void boolean(bool value);
  void none();
  void integers(const std::vector<int64_t>& values);  // a tuple
  // A contiguous tensor whose bytes are the record "data/KEY". `storage` is its class in Python: "FloatStorage".
  // Tensors with the same key share their memory in Python, as tied weights do.
  void tensor(std::string_view storage, std::string_view key, const std::vector<int64_t>& shape);

  std::string finish();  // the whole pickle

 private:
  void global(std::string_view module, std::string_view name);

  std::string out_ = "\x80\x02";
};

// Whether Python makes nothing but plain values and tensors of it, as it does of what any version of PickleWriter has written: it consists of
// the writer's opcodes, and calls no other function of Python's than those.
bool is_plain_pickle(std::string_view pickle);

}  // namespace gpt::container
