// The file format of checkpoints: 'f' and a file; or 'r' and records, each with its name, NUL, its content, NUL, of which a
// file is made whose hashes are right whatever is in it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "expect.h"
#include "folder.h"
#include "gpt/container/container.h"
#include "tests/container/forged_container.h"

namespace {

using namespace gpt;

std::string forged(std::string_view records) {
  constexpr size_t kLongestName = 0xff00;  // an entry has two bytes for its size
  ForgedContainer file;
  while (!records.empty()) {
    const std::string_view name = fuzz::next_part(records).substr(0, kLongestName);
    file.add(name, fuzz::next_part(records));
  }
  return file.finish();
}

// The writer makes the same file of what the reader found in it.
void expect_again(const ContainerReader& reader, const std::string& path, std::string_view file) {
  ContainerWriter writer(path);
  for (const std::string& name : reader.names()) {
    if (name != "manifest.json") writer.add(name, reader.record(name));
  }
  writer.commit();
  fuzz::expect(fuzz::content_of(path) == file, "the same file from the same records");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  if (rest.empty()) return 0;
  const bool is_forged = rest[0] == 'r';
  rest.remove_prefix(1);
  std::string file = is_forged ? forged(rest) : std::string(rest);

  const auto read = [&] {
    const ContainerReader reader(folder.write("ckpt.pt", file));
    expect_again(reader, folder / "again.pt", file);
  };
  if (!fuzz::accept_or_refuse(read, ExitCode::checkpoint)) return 0;
  const size_t at = size * 31 % file.size();  // any
  file[at] ^= static_cast<char>(1 << size % 8);
  fuzz::expect(!fuzz::accept_or_refuse(read, ExitCode::checkpoint), "a flipped bit to be found");
  file.resize(at);
  fuzz::expect(!fuzz::accept_or_refuse(read, ExitCode::checkpoint), "a truncated file to be found");
  return 0;
}
