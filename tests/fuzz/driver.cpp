// A short run of a fuzz target under any compiler: its seeds, then mutations of them, the same ones every time.
// usage: X_fuzz SEED_FOLDER RUNS        ten times as many where GPT_ALL_TESTS is set; an input that crashes is left in the working folder as X_fuzz.crash
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;

std::string input, crash_file;

extern "C" void keep_input(int signal) {
  const int fd = open(crash_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (fd >= 0 && write(fd, input.data(), input.size()) >= 0) {
    const char message[] = "fuzzing: the input is in the file X_fuzz.crash\n";
    if (write(STDERR_FILENO, message, sizeof message - 1) < 0) _exit(1);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

std::vector<std::string> read_seeds(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> seeds;
  for (const fs::path& path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

class Mutator {
 public:
  explicit Mutator(std::vector<std::string> seeds) : seeds_(std::move(seeds)) {}

  std::string next() {
    std::string bytes = seeds_[below(seeds_.size())];
    for (size_t changes = 1 + below(4); changes > 0; --changes) change(bytes);
    return bytes;
  }

 private:
  size_t below(size_t end) { return end == 0 ? 0 : random_() % end; }

  void change(std::string& bytes) {
    const size_t at = below(bytes.size()), length = std::min(bytes.size() - at, size_t{1} << below(7));
    const std::string& other = seeds_[below(seeds_.size())];
    const size_t there = below(other.size());
    switch (below(7)) {
      case 0:
        if (!bytes.empty()) bytes[at] ^= static_cast<char>(1 << below(8));
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = "\0\xFF\x7F\x80 09-\"[]{},:"[below(16)];
        break;
      case 2: bytes.erase(at, length); break;
      case 3: bytes.insert(below(bytes.size()), bytes.substr(at, length)); break;
      case 4: bytes.replace(at, length, other, there, 1 + below(64)); break;
      case 5: bytes.insert(at, std::string(1 + below(8), static_cast<char>(random_()))); break;
      case 6: bytes.resize(at); break;
    }
  }

  std::vector<std::string> seeds_;
  std::mt19937_64 random_{20};
};

void run() { LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size()); }

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> seeds = argc == 3 ? read_seeds(argv[1]) : std::vector<std::string>();
  const long runs = argc == 3 ? std::atol(argv[2]) * (std::getenv("GPT_ALL_TESTS") ? 10 : 1) : 0;
  if (seeds.empty() || runs <= 0) {
    std::fprintf(stderr, "usage: %s SEED_FOLDER RUNS\n", argv[0]);
    return 2;
  }
  crash_file = fs::path(argv[0]).filename().string() + ".crash";
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, keep_input);

  for (const std::string& seed : seeds) {
    input = seed;
    run();
  }
  Mutator mutator(seeds);
  for (long i = 0; i < runs; ++i) {
    input = mutator.next();
    run();
  }
  std::printf("%zu seeds and %ld mutations of them\n", seeds.size(), runs);
}
