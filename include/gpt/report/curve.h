// A curve of at most kMaxPoints points, however many values are added to it: a report of a run of weeks has to open at once.
//
// Steps are sorted into buckets of equal width, which doubles whenever there are more than kMaxPoints / 2 of them. Each bucket
// gives its smallest and its largest value, in the order in which they occurred, so that no spike is lost; a bucket with a
// value that was not finite gives one point and a gap. Means of the buckets are kept for smoothing, which extremes would bias.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace gpt::report {

struct CurvePoint {
  int64_t step = 0;
  std::optional<double> value;  // nothing: a gap
};

class Curve {
 public:
  static constexpr int kMaxPoints = 2000;

  // Steps rise; a step that does not is left out, and so is a negative one.
  void add(int64_t step, double value);
  // Points and means of the buckets that hold `from` and later steps.
  std::vector<CurvePoint> points(int64_t from = 0) const;  // at most kMaxPoints
  std::vector<CurvePoint> means(int64_t from = 0) const;  // at most kMaxPoints / 2; one without a finite value is a gap
  bool empty() const { return buckets_.empty(); }
  int64_t width() const { return width_; }          // of a bucket, in steps
  int64_t last_step() const { return last_step_; }  // -1: there is none

 private:
  struct Bucket {
    int64_t first_step = 0, lowest_step = 0, highest_step = 0, gap_step = -1;  // gap_step -1: every value was finite
    double lowest = 0, highest = 0, sum = 0;
    int64_t count = 0;  // how many finite values
  };
  static Bucket bucket_of(int64_t step, double value);
  static void merge(Bucket& into, const Bucket& next);
  void halve();
  std::vector<Bucket>::const_iterator first_from(int64_t step) const;

  std::vector<Bucket> buckets_;
  int64_t width_ = 1, last_step_ = -1;
};

}  // namespace gpt::report
