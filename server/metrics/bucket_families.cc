// Turns the figures of the copier into families.
#include "server/metrics/bucket_families.h"

#include <algorithm>

namespace trainyard::metrics {

Families BucketFamilies(const runtime::BucketCopier::Figures& figures, absl::Time now) {
  const auto count = [](int64_t value) { return static_cast<double>(value); };
  const int64_t age_us = figures.oldest_us == 0
                             ? 0
                             : std::max<int64_t>(absl::ToUnixMicros(now) - figures.oldest_us, 0);
  return {
      OneGauge("trainyard_bucket_waiting_checkpoints",
               "The checkpoints that wait to be copied to the bucket.", count(figures.waiting)),
      OneGauge("trainyard_bucket_oldest_waiting_seconds",
               "The age of the oldest checkpoint that waits; 0 if none does.", Seconds(age_us)),
      OneCounter("trainyard_bucket_copied_checkpoints_total",
                 "The checkpoints that were copied to the bucket.", count(figures.copied)),
      OneCounter("trainyard_bucket_removed_checkpoints_total",
                 "The copies that were removed from the bucket with their checkpoints.",
                 count(figures.removed)),
      OneCounter("trainyard_bucket_sent_bytes_total",
                 "The bytes of checkpoint files that were sent to the bucket.",
                 count(figures.sent_bytes)),
      OneCounter("trainyard_bucket_failures_total",
                 "The tries to copy or remove that have failed, after all repetitions.",
                 count(figures.failures)),
  };
}

}  // namespace trainyard::metrics
