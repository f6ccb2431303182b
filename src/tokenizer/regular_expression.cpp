// Regular expressions by PCRE2, compiled to machine code where it can.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "gpt/tokenizer/text_error.h"
#include "matcher.h"
#include "oniguruma.h"

namespace gpt::tokenizer {
namespace {

template <auto free_function>
struct FreedBy {
  template <class T>
  void operator()(T* object) const {
    free_function(object);
  }
};

// What a thread needs to match, whichever expression it is.
struct MatchMemory {
  static constexpr size_t kJitStack = size_t{1} << 25;
  std::unique_ptr<pcre2_match_data, FreedBy<pcre2_match_data_free>> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, FreedBy<pcre2_match_context_free>> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, FreedBy<pcre2_jit_stack_free>> stack{
      pcre2_jit_stack_create(size_t{1} << 15, kJitStack, nullptr)};

  MatchMemory() {
    constexpr uint32_t kMostSteps = 10'000'000, kMostHeapKilobytes = 1 << 16;  // Oniguruma gives up as early
    pcre2_set_match_limit(context.get(), kMostSteps);
    pcre2_set_heap_limit(context.get(), kMostHeapKilobytes);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }

  static MatchMemory& of_this_thread() {
    static thread_local MatchMemory memory;
    return memory;
  }
};

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 160> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

class RegularExpression final : public Matcher {
 public:
  explicit RegularExpression(const std::string& pattern) {
    const std::unique_ptr<pcre2_compile_context, FreedBy<pcre2_compile_context_free>> context(
        pcre2_compile_context_create(nullptr));
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get()));
    if (!code_) throw PatternError(message_of(error));
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // where that fails it is interpreted
  }

  std::optional<Match> find(std::string_view text, size_t from) const override {
    int result = try_to_match(text, from, 0);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = try_to_match(text, from, PCRE2_NO_JIT);
    if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
    if (result < 0) {
      throw TextError(from, fmt::format("a regular expression of the tokenizer gives up: {}", message_of(result)),
                      "break the text into lines here, or use another tokenizer");
    }
    const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(MatchMemory::of_this_thread().data.get());
    return Match{ends[0], ends[1]};
  }

 private:
  int try_to_match(std::string_view text, size_t from, uint32_t options) const {
    const MatchMemory& memory = MatchMemory::of_this_thread();
    return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       options | PCRE2_NO_UTF_CHECK, memory.data.get(), memory.context.get());
  }

  std::unique_ptr<pcre2_code, FreedBy<pcre2_code_free>> code_;
};

}  // namespace

std::unique_ptr<const Matcher> match_expression(std::string_view pattern) {
  return std::make_unique<RegularExpression>(pcre2_pattern(pattern));
}

}  // namespace gpt::tokenizer
