// train_bpe_file TEXT VOCABULARY_SIZE MIN_FREQUENCY THREADS RESULT: trains BPE on a file, for
// scripts/compare_bpe_training.sh. RESULT gets tokenizer.json, standard output one JSON object of what it took.
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "gpt/core/error.h"
#include "gpt/tokenizer/bpe_files.h"
#include "gpt/tokenizer/bpe_trainer.h"
#include "gpt/tokenizer/pre_tokenizer.h"

namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

struct Clock {
  double wall, cpu;
  static Clock now() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now().time_since_epoch();
    return {wall.count(), seconds(usage.ru_utime) + seconds(usage.ru_stime)};
  }
};

int64_t peak_megabytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

// Gives the trainer the file in parts; returns its size.
size_t add_file(gpt::tokenizer::BpeTrainer& trainer, gpt::tokenizer::SplitPattern split, const char* path) {
  constexpr size_t kPart = size_t{64} << 20;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw gpt::Error(gpt::ExitCode::data, fmt::format("{}: cannot be read", path));
  std::string part;
  size_t total = 0;
  while (true) {
    const size_t kept = part.size();
    part.resize(kept + kPart);
    file.read(part.data() + kept, kPart);
    part.resize(kept + static_cast<size_t>(file.gcount()));
    total += static_cast<size_t>(file.gcount());
    const size_t end = file ? gpt::tokenizer::last_piece_boundary(split, part) : part.size();
    trainer.add(std::string_view(part).substr(0, end));
    part.erase(0, end);
    if (!file) return total;
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 6) {
    std::fputs("usage: train_bpe_file TEXT VOCABULARY_SIZE MIN_FREQUENCY THREADS RESULT\n", stderr);
    return 2;
  }
  gpt::tokenizer::BpeTrainingOptions options;
  options.vocab_size = std::atoll(argv[2]);
  options.min_frequency = std::atoll(argv[3]);
  options.threads = std::atoi(argv[4]);

  const Clock start = Clock::now();
  gpt::tokenizer::BpeTrainer trainer(options);
  const size_t bytes = add_file(trainer, options.split, argv[1]);
  const Clock counted = Clock::now();
  const gpt::tokenizer::BpeModel model = trainer.train();
  const Clock end = Clock::now();

  std::ofstream result(argv[5]);
  result << gpt::tokenizer::tokenizer_json(model);
  if (!result.flush()) throw gpt::Error(gpt::ExitCode::disk, fmt::format("{}: cannot be written", argv[5]));
  fmt::print(R"({{"seconds": {:.3f}, "cpu_seconds": {:.3f}, "counting_seconds": {:.3f}, "peak_mb": {}, "text_mb": {}}})"
             "\n",
             end.wall - start.wall, end.cpu - start.cpu, counted.wall - start.wall, peak_megabytes(), bytes >> 20);
  return 0;
} catch (const gpt::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.code());
}
