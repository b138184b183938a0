// Shows how far the copies of checkpoints in the bucket are.
#pragma once

#include "absl/time/time.h"
#include "server/metrics/families.h"
#include "server/runtime/bucket_copier.h"

namespace trainyard::metrics {

Families BucketFamilies(const runtime::BucketCopier::Figures& figures, absl::Time now);

}  // namespace trainyard::metrics
