// Finds where buckets end, given the ranges that backward makes final.
#include "worker/parallel/buckets.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/hash.h"

namespace trainyard::parallel {
namespace {

// A range that is larger than this many buckets is cut.
constexpr int64_t kBucketsPerRangeMax = 2;

// Returns the possible ends of buckets, ascending, for the ranges in [begin, end): the ends of the
// ranges, and points inside those that are much larger than a bucket.
std::vector<int64_t> PossibleEnds(absl::Span<const int64_t> ready, int64_t begin, int64_t end,
                                  int64_t bucket) {
  std::vector<int64_t> ends;
  int64_t from = begin;
  for (const int64_t ready_end : ready) {
    const int64_t to = std::min(ready_end, end);
    if (to <= from) continue;
    const int64_t size = to - from;
    const int64_t pieces = size > kBucketsPerRangeMax * bucket ? (size + bucket - 1) / bucket : 1;
    for (int64_t i = 1; i <= pieces; ++i) ends.push_back(from + size / pieces * i);
    ends.back() = to;
    from = to;
  }
  return ends;
}

// Returns where the last bucket begins, which has at most `last` elements, or is one range. Returns
// 0 if there would be only a first bucket before it, since one collective is better than two small
// ones.
int64_t LastBegin(absl::Span<const int64_t> ends, const BucketOptions& options) {
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    if (ends[i] < options.first_bucket_elements) continue;
    if (ends.back() - ends[i] <= options.last_bucket_elements || i + 2 == ends.size()) {
      return ends[i];
    }
  }
  return 0;
}

}  // namespace

std::vector<Bucket> PlanBuckets(absl::Span<const int64_t> ready, int64_t gradient_elements,
                                const BucketOptions& options) {
  TY_CHECK(options.bucket_elements > 0 && std::is_sorted(ready.begin(), ready.end()));
  std::vector<Bucket> buckets;
  const int64_t size = ready.empty() ? 0 : ready.back();
  TY_CHECK(gradient_elements >= 0 && gradient_elements <= size);

  const std::vector<int64_t> ends =
      PossibleEnds(ready, 0, gradient_elements, options.bucket_elements);
  const int64_t last_begin = LastBegin(ends, options);
  int64_t begin = 0;
  for (const int64_t end : ends) {
    const int64_t wanted =
        buckets.empty() ? options.first_bucket_elements : options.bucket_elements;
    if (end != last_begin && end != gradient_elements) {
      if (end - begin < wanted || end > last_begin) continue;
      // Half a bucket or less is not worth a collective of its own.
      if (!buckets.empty() && last_begin - end < options.bucket_elements / 2) continue;
    }
    buckets.push_back({begin, end});
    begin = end;
  }

  for (const int64_t end : PossibleEnds(ready, gradient_elements, size, options.bucket_elements)) {
    if (end - begin < options.bucket_elements && end != size) continue;
    buckets.push_back({begin, end});
    begin = end;
  }
  return buckets;
}

std::string HashOfBuckets(absl::Span<const Bucket> buckets) {
  std::string text;
  for (const Bucket& bucket : buckets) absl::StrAppend(&text, bucket.begin, "-", bucket.end, "\n");
  return ContentHash(text);
}

}  // namespace trainyard::parallel
