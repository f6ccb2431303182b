// What tokenizer.json calls pre-tokenizers: a chain of steps, each of which splits the pieces that the one before made
// and may change them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "matcher.h"

namespace gpt::tokenizer {

struct TextPiece {
  std::string_view text;  // not empty
  bool starts_text;       // nothing of the whole text is before it
};

using PieceVisitor = std::function<void(TextPiece)>;

// Calls `next` for each piece in order, none of them empty. Safe to use from several threads at once.
using TextSplitter = std::function<void(TextPiece piece, const PieceVisitor& next)>;

// What happens to what is matched: it is a piece, it is left out, it is joined to what is before or behind it unless that
// is matched too, or matches that follow each other are one piece.
enum class SplitBehavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };

// `invert`: what is not matched is split off instead.
TextSplitter split_at(std::shared_ptr<const Matcher> matcher, SplitBehavior behavior, bool invert);

// A space is put before every piece that does not begin with one, the piece is split as GPT-2 does, and its bytes are
// spelled in GPT-2's printable alphabet; each of the three only if asked for.
TextSplitter byte_level(bool prefix_space, bool as_gpt2, bool spell);

enum class PrependScheme { first, never, always };

// Spaces become `replacement`, one is put before a piece that does not begin with it (`first`: only at the start of the
// whole text), and each begins a piece if `split`.
TextSplitter metaspace(std::string replacement, PrependScheme scheme, bool split);

}  // namespace gpt::tokenizer
