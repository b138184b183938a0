// Plans buckets, which are ranges of the reduction arena that are summed by one collective each, in
// the order in which backward produces them. The first one is small, so that the wire is busy
// early. The last one is small too, since nothing hides it. Those between are large enough for the
// full bandwidth.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace trainyard::parallel {

// Elements [begin, end) of the arena. They lie within [0, gradient_elements) or after it, but never
// on both sides, since what lies after it has no parameters.
struct Bucket {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  friend bool operator==(const Bucket&, const Bucket&) = default;
};

struct BucketOptions {
  int64_t bucket_elements = int64_t{25} << 18;
  int64_t first_bucket_elements = int64_t{1} << 18;
  int64_t last_bucket_elements = int64_t{1} << 18;
};

// Plans buckets that cover the arena without gap, in ascending order. `ready` holds the ends of the
// ranges that become final one after the other (what on_ready reports), ascending; the last one is
// the arena's size. No bucket ends elsewhere, except inside a range that is much larger than a
// bucket.
std::vector<Bucket> PlanBuckets(absl::Span<const int64_t> ready, int64_t gradient_elements,
                                const BucketOptions& options);

// Returns a hash of the whole plan, which must be equal on all ranks.
std::string HashOfBuckets(absl::Span<const Bucket> buckets);

}  // namespace trainyard::parallel
