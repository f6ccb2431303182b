// How many threads compute a token soonest. On an idle machine that is about all of them. Beside another busy program, threads wait
// for one another in every operator, and one alone can be 20 times as fast. So it is tried, while text is written, and again now
// and then. The texts hardly depend on it: the number of threads may change the last digits of a logit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace gpt::generate {

class ThreadChoice {
 public:
  explicit ThreadChoice(int64_t most);  // from 1 to `most`

  int64_t most() const { return counts_.back(); }
  int64_t threads() const { return counts_[current_]; }  // for the next token
  void took(double seconds);                             // that token

 private:
  void begin_round(std::optional<double> known = {});
  void end_trial();
  void use(size_t count);
  bool is_hopeless() const;
  bool has_changed() const;
  bool is_slower_than_another() const;
  size_t fastest() const;
  std::optional<size_t> untried() const;

  std::vector<int64_t> counts_;                 // ascending
  std::vector<std::optional<double>> seconds_;  // what a token took with each of them, as tried in this round
  size_t current_ = 0;
  std::vector<double> recent_;  // what the latest tokens took with these threads
  bool is_trying_ = true;
  double spent_ = 0;  // in this round, or since it ended
  double round_ = 0;  // what the last round took
};

// Computes a token of each text, which is all the work where `is_alone`, with as many threads as `choice` says. All threads share the many
// rows of a prompt well.
void work_timed(ThreadChoice& choice, bool is_alone, const std::function<void()>& work);

}  // namespace gpt::generate
