// The file format of Hugging Face's weights: 'f' and a file; or 'h' and a header, NUL and the values, of which a file is made whose
// header has the length that it says.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "expect.h"
#include "folder.h"
#include "gpt/exchange/safetensors.h"

namespace {

using namespace gpt;
using exchange::SafetensorsReader;
using exchange::StoredTensor;

std::string with_length(std::string_view input) {
  const std::string_view header = fuzz::next_part(input);
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  return file.append(header).append(input);
}

// The writer makes a file of what the reader found in it, in which the reader finds the same.
void expect_again(const SafetensorsReader& reader, const std::string& path) {
  std::vector<exchange::TensorForm> forms;
  for (const StoredTensor& tensor : reader.tensors()) forms.push_back(tensor);
  exchange::SafetensorsWriter writer(path, forms);
  for (const StoredTensor& tensor : reader.tensors()) writer.add(tensor.bytes);
  writer.commit();
  const SafetensorsReader again(path);
  fuzz::expect(again.tensors().size() == forms.size(), "the same tensors");
  for (const StoredTensor& tensor : reader.tensors()) {
    const StoredTensor* const found = again.find(tensor.name);
    fuzz::expect(found && found->dtype == tensor.dtype && found->shape == tensor.shape, "a tensor of the same form");
    fuzz::expect(std::ranges::equal(found->bytes, tensor.bytes), "the same values");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  if (rest.empty()) return 0;
  const bool has_header = rest[0] == 'h';
  rest.remove_prefix(1);
  const std::string file = has_header ? with_length(rest) : std::string(rest);
  fuzz::accept_or_refuse(
      [&] {
        const SafetensorsReader reader(folder.write("model.safetensors", file));
        size_t bytes = 0;
        for (const StoredTensor& tensor : reader.tensors()) bytes += tensor.bytes.size();
        fuzz::expect(bytes <= file.size(), "no values beyond the file");
        expect_again(reader, folder / "again.safetensors");
      },
      ExitCode::checkpoint);
  return 0;
}
