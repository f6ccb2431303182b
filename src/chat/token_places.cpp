#include "token_places.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace gpt::chat {
namespace {

// The texts of the ids, one behind the other, and where each begins.
std::string joined_pieces(const std::vector<int32_t>& ids, const tokenizer::Tokenizer& tokenizer,
                          std::vector<size_t>& begins) {
  std::string all;
  for (const int32_t id : ids) {
    begins.push_back(all.size());
    all += tokenizer.piece(id, /*begins_text=*/false);
  }
  begins.push_back(all.size());
  return all;
}

}  // namespace

TokenPlaces::TokenPlaces(PlainText text, const tokenizer::Tokenizer& tokenizer)
    : text_(std::move(text)), tokenizer_(tokenizer) {
  encode_plain(text_, tokenizer_, ids_);
  is_exact_ = joined_pieces(ids_, tokenizer_, begins_) == text_.text;
}

// Where tokens spell the text as it is, a place is the same in both. A tokenizer that changes texts, such as one that puts a space before
// them, changes their beginnings in the same way: there as much is before the place as the tokens of that beginning have.
size_t TokenPlaces::place_of(size_t offset) const {
  if (is_exact_) return offset;
  PlainText before{text_.text.substr(0, offset), {}};
  const auto end = std::lower_bound(text_.plain.begin(), text_.plain.end(), offset);
  before.plain.assign(text_.plain.begin(), end);
  std::vector<int32_t> ids;
  encode_plain(before, tokenizer_, ids);
  std::vector<size_t> begins;
  return joined_pieces(ids, tokenizer_, begins).size();
}

size_t TokenPlaces::first_from(size_t offset) const {
  if (offset >= text_.text.size()) return ids_.size();
  const auto found = std::lower_bound(begins_.begin(), begins_.end() - 1, place_of(offset));
  return static_cast<size_t>(std::distance(begins_.begin(), found));
}

}  // namespace gpt::chat
