// Converts times of the device into those of the host, which saw only the end of a step.
#include "worker/parallel/nccl/step_events.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "common/base/status_macros.h"

namespace trainyard::parallel {
namespace {

// Returns the event from `from` to `to`, in the host's time.
absl::StatusOr<CommEvent> EventOf(CommEvent::Kind kind, int64_t bucket, const OwnedEvent& from,
                                  const OwnedEvent& to, const OwnedEvent& done,
                                  const StepSight& sight) {
  TY_ASSIGN_OR_RETURN(const absl::Duration took, Between(from, to));
  TY_ASSIGN_OR_RETURN(const absl::Duration before, Between(to, done));
  // The host waited for the end of everything, and so saw it at once. If it came too late to wait,
  // the times are as much too late.
  const absl::Duration end = std::max(sight.begin_uptime, sight.end_uptime - before);
  return CommEvent{.kind = kind,
                   .bucket = bucket,
                   .begin = std::max(sight.begin_uptime, end - took),
                   .end = end,
                   .bytes = 0};
}

}  // namespace

absl::Status StepEvents::Create(size_t bucket_count) {
  buckets.resize(bucket_count);
  for (OfBucket& bucket : buckets) {
    for (OwnedEvent* event : {&bucket.ready, &bucket.begun, &bucket.summed, &bucket.updated,
                              &bucket.sending, &bucket.shared}) {
      TY_RETURN_IF_ERROR(event->Create(EventTimes::kTaken));
    }
  }
  TY_RETURN_IF_ERROR(begun.Create(EventTimes::kTaken));
  return done.Create(EventTimes::kTaken);
}

absl::StatusOr<CommStats> TakeStats(const StepEvents& events, const StepSight& sight,
                                    const std::function<bool(size_t bucket)>& is_shared) {
  CommStats stats;
  stats.bytes_sent = sight.bytes_sent;
  const auto add = [&](CommEvent::Kind kind, size_t bucket, const OwnedEvent& from,
                       const OwnedEvent& to) -> absl::Status {
    TY_ASSIGN_OR_RETURN(const absl::Duration took, Between(from, to));
    stats.total += took;
    if (!sight.traces) return absl::OkStatus();
    TY_ASSIGN_OR_RETURN(CommEvent event,
                        EventOf(kind, static_cast<int64_t>(bucket), from, to, events.done, sight));
    stats.events.push_back(std::move(event));
    return absl::OkStatus();
  };
  for (size_t i = 0; i < events.buckets.size(); ++i) {
    const StepEvents::OfBucket& bucket = events.buckets[i];
    TY_RETURN_IF_ERROR(add(CommEvent::Kind::kReduce, i, bucket.begun, bucket.summed));
  }
  for (size_t i = 0; i < events.buckets.size(); ++i) {
    const StepEvents::OfBucket& bucket = events.buckets[i];
    if (!is_shared(i)) continue;
    TY_RETURN_IF_ERROR(add(CommEvent::Kind::kShare, i, bucket.sending, bucket.shared));
  }
  if (events.buckets.empty()) return stats;
  // Backward ends when the last bucket is ready, and nothing hides what comes after it.
  const OwnedEvent& computed = events.buckets.back().ready;
  TY_ASSIGN_OR_RETURN(const absl::Duration exposed, Between(computed, events.done));
  stats.exposed = std::min(stats.total, exposed);
  TY_ASSIGN_OR_RETURN(stats.computed, Between(events.begun, computed));
  if (!sight.traces) return stats;
  TY_ASSIGN_OR_RETURN(CommEvent event, EventOf(CommEvent::Kind::kCompute, /*bucket=*/-1,
                                               events.begun, computed, events.done, sight));
  stats.events.push_back(std::move(event));
  return stats;
}

}  // namespace trainyard::parallel
