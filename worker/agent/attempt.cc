// Describes an attempt in the terms of a report.
#include "worker/agent/attempt.h"

#include <algorithm>

namespace trainyard::agent {
namespace {

bool HasStepped(const run_dir::Progress& progress) {
  return progress.state != run_dir::Progress::State::kStarting;
}

}  // namespace

std::optional<absl::Duration> TimeLeft(const run_dir::Progress& progress, int64_t global_batch) {
  if (progress.samples_per_s <= 0 || global_batch <= 0) return std::nullopt;
  const int64_t steps = std::max<int64_t>(0, progress.total_steps - progress.step);
  return absl::Seconds(static_cast<double>(steps) * static_cast<double>(global_batch) /
                       progress.samples_per_s);
}

ReportedAttempt Describe(const Attempt& attempt) {
  ReportedAttempt reported;
  reported.id = attempt.id;
  reported.fencing_token = attempt.local.fencing_token;
  using State = ReportedAttempt::State;
  const size_t ranks = attempt.ranks.size();
  const bool all_stepped = ranks > 0 && attempt.progress.size() == ranks &&
                           std::all_of(attempt.progress.begin(), attempt.progress.end(),
                                       [](const auto& entry) { return HasStepped(entry.second); });
  if (attempt.exit.has_value()) {
    reported.state = State::kExited;
  } else if (attempt.local.stop.has_value()) {
    reported.state = State::kStopping;
  } else {
    reported.state = all_stepped ? State::kRunning : State::kStarting;
  }
  if (!attempt.progress.empty()) {
    reported.progress = attempt.progress.begin()->second;
    if (reported.state == State::kRunning) {
      reported.eta = TimeLeft(*reported.progress, attempt.global_batch);
    }
  }
  if (!attempt.local.committed.empty()) {
    reported.checkpoint_step = *attempt.local.committed.rbegin();
  }
  reported.isolation = attempt.isolation;
  reported.exit = attempt.exit;
  reported.drained = attempt.exit.has_value() && attempt.local.drained;
  reported.metrics = attempt.final_metrics;
  return reported;
}

}  // namespace trainyard::agent
