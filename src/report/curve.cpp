#include "gpt/report/curve.h"

#include <algorithm>
#include <cmath>

namespace gpt::report {

Curve::Bucket Curve::bucket_of(int64_t step, double value) {
  Bucket bucket;
  bucket.first_step = bucket.lowest_step = bucket.highest_step = step;
  if (std::isfinite(value)) {
    bucket.lowest = bucket.highest = bucket.sum = value;
    bucket.count = 1;
  } else {
    bucket.gap_step = step;
  }
  return bucket;
}

void Curve::merge(Bucket& into, const Bucket& next) {
  if (into.gap_step < 0) into.gap_step = next.gap_step;
  if (next.count == 0) return;
  if (into.count == 0 || next.lowest < into.lowest) {
    into.lowest = next.lowest;
    into.lowest_step = next.lowest_step;
  }
  if (into.count == 0 || next.highest > into.highest) {
    into.highest = next.highest;
    into.highest_step = next.highest_step;
  }
  into.sum += next.sum;
  into.count += next.count;
}

void Curve::halve() {
  width_ *= 2;
  size_t kept = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (kept > 0 && buckets_[kept - 1].first_step / width_ == buckets_[i].first_step / width_) {
      merge(buckets_[kept - 1], buckets_[i]);
    } else {
      buckets_[kept++] = buckets_[i];
    }
  }
  buckets_.resize(kept);
}

void Curve::add(int64_t step, double value) {
  if (step <= last_step_) return;
  last_step_ = step;
  const Bucket bucket = bucket_of(step, value);
  if (!buckets_.empty() && buckets_.back().first_step / width_ == step / width_) {
    merge(buckets_.back(), bucket);
  } else {
    buckets_.push_back(bucket);
  }
  while (buckets_.size() > kMaxPoints / 2) halve();
}

std::vector<Curve::Bucket>::const_iterator Curve::first_from(int64_t step) const {
  const auto is_before = [this](const Bucket& bucket, int64_t place) { return bucket.first_step / width_ < place; };
  return std::lower_bound(buckets_.begin(), buckets_.end(), step / width_, is_before);
}

std::vector<CurvePoint> Curve::points(int64_t from) const {
  std::vector<CurvePoint> points;
  for (auto at = first_from(from); at != buckets_.end(); ++at) {
    const Bucket& bucket = *at;
    const CurvePoint low{bucket.lowest_step, bucket.lowest}, high{bucket.highest_step, bucket.highest};
    if (bucket.gap_step >= 0) {
      const CurvePoint gap{bucket.gap_step, std::nullopt};
      if (bucket.count > 0 && high.step < gap.step) points.push_back(high);
      points.push_back(gap);
      if (bucket.count > 0 && high.step > gap.step) points.push_back(high);
    } else if (low.step == high.step) {
      points.push_back(low);
    } else {
      points.push_back(low.step < high.step ? low : high);
      points.push_back(low.step < high.step ? high : low);
    }
  }
  return points;
}

std::vector<CurvePoint> Curve::means(int64_t from) const {
  std::vector<CurvePoint> means;
  for (auto bucket = first_from(from); bucket != buckets_.end(); ++bucket) {
    means.push_back({bucket->first_step, std::nullopt});
    if (bucket->count > 0) means.back().value = bucket->sum / static_cast<double>(bucket->count);
  }
  return means;
}

}  // namespace gpt::report
