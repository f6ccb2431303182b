// The file format of checkpoints: 'f' and a file; or 'r' and records, each with its name, NUL, its content, NUL, of which a
// file is made whose hashes are right whatever is in it; or 'o' and such records for the format before.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "expect.h"
#include "folder.h"
#include "tests/container/forged_container.h"
#include "tests/container/records.h"

namespace {

using namespace gpt;

std::string forged(std::string_view records, int version) {
  constexpr size_t kLongestName = 0xff00;  // an entry has two bytes for its size
  container::ForgedContainer file(version);
  while (!records.empty()) {
    const std::string_view name = fuzz::next_part(records).substr(0, kLongestName);
    file.add(name, fuzz::next_part(records));
  }
  return file.finish();
}

// The writer makes the same file of what the reader found in it, or one of today's with the same records.
void expect_again(const std::string& found, const std::string& again, bool is_older) {
  const test::Records records = test::records_of(found);
  test::write_records(again, records);
  if (is_older) {
    fuzz::expect(test::records_of(again) == records, "the same records");
  } else {
    fuzz::expect(fuzz::content_of(again) == fuzz::content_of(found), "the same file from the same records");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const fuzz::Folder folder;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  if (rest.empty()) return 0;
  const char kind = rest[0];
  rest.remove_prefix(1);
  std::string file = kind == 'r' || kind == 'o' ? forged(rest, kind == 'o' ? 1 : 2) : std::string(rest);
  constexpr std::string_view kOlderMark = "gpt-train checkpoint 1 ";  // and 32 digits end the file
  const bool is_older =
      std::string_view(file).substr(file.size() - std::min<size_t>(file.size(), 55)).starts_with(kOlderMark);

  const auto read = [&] { expect_again(folder.write("ckpt.pt", file), folder / "again.pt", is_older); };
  if (!fuzz::accept_or_refuse(read, ExitCode::checkpoint)) return 0;
  const size_t at = size * 31 % file.size();  // any
  file[at] ^= static_cast<char>(1 << size % 8);
  fuzz::expect(!fuzz::accept_or_refuse(read, ExitCode::checkpoint), "a flipped bit to be found");
  file.resize(at);
  fuzz::expect(!fuzz::accept_or_refuse(read, ExitCode::checkpoint), "a truncated file to be found");
  return 0;
}
