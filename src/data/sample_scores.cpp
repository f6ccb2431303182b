#include "sample_scores.h"

#include <zlib.h>

#include <algorithm>
#include <new>
#include <numeric>

#include "gpt/core/error.h"

namespace gpt::data {
namespace {

// One stream for all samples: setting one up costs more than compressing a short sample.
class Compressor {
 public:
  Compressor() {
    if (deflateInit(&stream_, Z_BEST_SPEED) != Z_OK) throw std::bad_alloc();
  }
  ~Compressor() { deflateEnd(&stream_); }
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  int64_t size_of(const void* data, int64_t bytes) {
    deflateReset(&stream_);
    buffer_.resize(deflateBound(&stream_, static_cast<uLong>(bytes)));
    stream_.next_in = static_cast<Bytef*>(const_cast<void*>(data));
    stream_.avail_in = static_cast<uInt>(bytes);
    stream_.next_out = buffer_.data();
    stream_.avail_out = static_cast<uInt>(buffer_.size());
    deflate(&stream_, Z_FINISH);
    return static_cast<int64_t>(stream_.total_out);
  }

 private:
  z_stream stream_{};
  std::vector<Bytef> buffer_;
};

std::vector<int64_t> compressed_sizes(const Tokens& tokens, const SampleOrder& order) {
  Compressor compressor;
  std::vector<int64_t> scores(order.samples_per_epoch());
  for (int64_t i = 0; i < std::ssize(scores); ++i) {
    const Tokens sample = tokens.slice(order.start(0, i), order.start(0, i) + order.block_size());
    scores[i] = compressor.size_of(sample.data(), sample.bytes());  // all are as long as each other
  }
  return scores;
}

std::vector<int64_t> document_lengths(const Tokens& tokens, const SampleOrder& order, int32_t end_of_text) {
  std::vector<int64_t> scores(order.samples_per_epoch());
  int64_t sample = 0;
  for (int64_t begin = 0; begin < tokens.size() && sample < std::ssize(scores);) {
    int64_t end = begin;
    while (end < tokens.size() && tokens[end] != end_of_text) ++end;
    ++end;  // the mark belongs to its document
    for (; sample < std::ssize(scores) && order.start(0, sample) < end; ++sample) scores[sample] = end - begin;
    begin = end;
  }
  return scores;
}

}  // namespace

void require_documents(DataOrder by, std::optional<int32_t> end_of_text) {
  if (by != DataOrder::shorter_first || end_of_text) return;
  throw Error(ExitCode::config,
              "data.order: shorter_first needs documents, and this tokenizer marks no end of text; set "
              "data.order: simpler_first, or a tokenizer such as bpe:4096 or gpt2");
}

std::vector<int64_t> easiest_first(const Tokens& tokens, const SampleOrder& order, DataOrder by,
                                   std::optional<int32_t> end_of_text) {
  const std::vector<int64_t> scores =
      by == DataOrder::shorter_first ? document_lengths(tokens, order, *end_of_text) : compressed_sizes(tokens, order);
  std::vector<int64_t> samples(scores.size());
  std::iota(samples.begin(), samples.end(), 0);
  std::stable_sort(samples.begin(), samples.end(), [&](int64_t a, int64_t b) { return scores[a] < scores[b]; });
  return samples;
}

}  // namespace gpt::data
