// Adds up the times of steps and reports their means.
#include "worker/trainer/run/step_meter.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace trainyard::trainer {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(100);
// The times of the other ranks, which show who is slow, are reported at most this often.
constexpr absl::Duration kRanksInterval = absl::Seconds(5);
constexpr size_t kRanksMax = 64;

}  // namespace

void StepMeter::Add(int64_t step, absl::Duration now, absl::Duration compute,
                    const parallel::CommStats& communication, absl::Span<const Ballot> ballots) {
  ++steps_;
  compute_ += compute;
  total_ += communication.total;
  exposed_ += communication.exposed;
  bytes_ += communication.bytes_sent;
  if (now - reported_ < kInterval) return;
  Report(step);
  reported_ = now;
  if (now - ranks_reported_ < kRanksInterval) return;
  for (size_t rank = 1; rank < std::min(ballots.size(), kRanksMax); ++rank) {
    if (ballots[rank].computed_rows <= 0) continue;
    reporter_.AddMetric(step, absl::StrCat("compute.seconds.rank", rank),
                        ballots[rank].compute_seconds);
  }
  ranks_reported_ = now;
}

void StepMeter::Report(int64_t step) {
  const auto steps = static_cast<double>(steps_);
  const double total = absl::ToDoubleSeconds(total_);
  const double exposed = absl::ToDoubleSeconds(exposed_);
  reporter_.AddMetric(step, "compute.seconds", absl::ToDoubleSeconds(compute_) / steps);
  reporter_.AddMetric(step, "comm.seconds", total / steps);
  reporter_.AddMetric(step, "comm.exposed_seconds", exposed / steps);
  reporter_.AddMetric(step, "comm.hidden_fraction",
                      total > 0 ? std::clamp(1 - exposed / total, 0.0, 1.0) : 1);
  reporter_.AddMetric(step, "comm.bytes", static_cast<double>(bytes_) / steps);
  steps_ = 0;
  compute_ = total_ = exposed_ = absl::ZeroDuration();
  bytes_ = 0;
}

}  // namespace trainyard::trainer
