// encode_file TOKENIZER DOCUMENTS IDS [TEXTS [specials]]: encodes one document after the other and prints the processor seconds that
// each took, so that scripts/compare_tokenizers.py can hold ids and speed against other programs. DOCUMENTS has a 32-bit
// length before each document, IDS gets a 32-bit count before the ids of each. The ids must decode to the document, or
// what they decode to is written to TEXTS, in the form of DOCUMENTS. With "specials" the names of special tokens become
// those tokens.
//
// encode_file TOKENIZER DOCUMENTS passes COUNT THREADS: encodes all documents COUNT times on so many threads and prints the
// processor seconds and the seconds that each pass took, from bytes in memory to ids in memory. Another tokenizer goes first, so that the
// process has its memory: in a virtual machine that can take longer to come than the work does.
#include <sys/mman.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gpt/core/error.h"
#include "gpt/core/file.h"
#include "gpt/tokenizer/make_tokenizer.h"

namespace {

std::vector<std::string_view> documents_in(std::string_view file) {
  std::vector<std::string_view> documents;
  while (!file.empty()) {
    uint32_t bytes = 0;
    if (file.size() < sizeof(bytes)) throw std::runtime_error("the file of documents ends within a length");
    std::memcpy(&bytes, file.data(), sizeof(bytes));
    file.remove_prefix(sizeof(bytes));
    if (file.size() < bytes) throw std::runtime_error("the file of documents ends within a document");
    documents.push_back(file.substr(0, bytes));
    file.remove_prefix(bytes);
  }
  return documents;
}

void write_text(const std::string& text, std::ofstream& output) {
  const auto bytes = static_cast<uint32_t>(text.size());
  output.write(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  output.write(text.data(), static_cast<std::streamsize>(text.size()));
}

void encode_file(const std::string& tokenizer_spec, const std::string& documents_path, const std::string& ids_path,
                 const char* texts_path, bool specials) {
  const auto tokenizer = gpt::tokenizer::make_tokenizer(tokenizer_spec, "");
  const std::string file = gpt::read_file(documents_path, gpt::ExitCode::data);
  std::ofstream output(ids_path, std::ios::binary), texts;
  if (texts_path) texts.open(texts_path, std::ios::binary);
  for (const std::string_view document : documents_in(file)) {
    const std::clock_t start = std::clock();
    const std::vector<int32_t> ids = specials ? tokenizer->encode_with_specials(document) : tokenizer->encode(document);
    std::printf("%.6f\n", static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    const std::string text = tokenizer->decode(ids);
    if (texts_path) {
      write_text(text, texts);
    } else if (text != document) {
      throw std::runtime_error("the ids do not decode to the document");
    }
    const auto count = static_cast<uint32_t>(ids.size());
    output.write(reinterpret_cast<const char*>(&count), sizeof(count));
    output.write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(ids.size() * sizeof(int32_t)));
  }
  if (!output.flush() || (texts_path && !texts.flush())) throw std::runtime_error(ids_path + ": cannot be written");
}

// Room for one id a byte, in large pages, of which only what is written becomes memory.
std::vector<int32_t> room_for(size_t ids) {
  std::vector<int32_t> room;
  room.reserve(ids);
  constexpr uintptr_t kPage = 4096;
  const auto begin = reinterpret_cast<uintptr_t>(room.data()), end = begin + ids * sizeof(int32_t);
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
  return room;
}

void time_passes(const std::string& tokenizer_spec, const std::string& documents_path, int passes, int threads) {
  using Clock = std::chrono::steady_clock;
  const auto first = gpt::tokenizer::make_tokenizer(tokenizer_spec, "");
  const auto tokenizer = gpt::tokenizer::make_tokenizer(tokenizer_spec, "");
  const std::string file = gpt::read_file(documents_path, gpt::ExitCode::data);
  const std::vector<std::string_view> documents = documents_in(file);
  std::atomic<size_t> next = 0;
  bool is_first = true;
  std::clock_t cpu_start = std::clock();
  Clock::time_point start = Clock::now();
  std::barrier pass_ends(threads, [&]() noexcept {
    const double cpu_seconds = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
    if (!is_first) std::printf("%.6f %.6f\n", cpu_seconds, std::chrono::duration<double>(Clock::now() - start).count());
    is_first = false;
    next = 0;
    cpu_start = std::clock();
    start = Clock::now();
  });
  const auto work = [&] {
    for (int pass = -1; pass < passes; ++pass) {
      std::vector<int32_t> ids = room_for(file.size());
      const gpt::tokenizer::Tokenizer& encoder = pass < 0 ? *first : *tokenizer;
      for (size_t i; (i = next++) < documents.size();) encoder.encode(documents[i], ids);
      pass_ends.arrive_and_wait();
    }
  };
  std::vector<std::jthread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 6) {
    std::fputs(
        "usage: encode_file TOKENIZER DOCUMENTS IDS [TEXTS [specials]]\n"
        "       encode_file TOKENIZER DOCUMENTS passes COUNT THREADS\n",
        stderr);
    return 2;
  }
  try {
    if (std::string_view(argv[3]) == "passes" && argc == 6) {
      time_passes(argv[1], argv[2], std::stoi(argv[4]), std::stoi(argv[5]));
      return 0;
    }
    encode_file(argv[1], argv[2], argv[3], argc > 4 ? argv[4] : nullptr, argc > 5);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "encode_file: %s\n", error.what());
    return 1;
  }
}
