#include "worker/agent/report.h"

#include <utility>

namespace trainyard::agent {
namespace {

// The attempt without what changes with every step.
ReportedAttempt Steady(ReportedAttempt attempt) {
  if (attempt.progress.has_value()) {
    run_dir::Progress steady;
    steady.data_digest = attempt.progress->data_digest;
    steady.model_digest = attempt.progress->model_digest;
    attempt.progress = std::move(steady);
  }
  attempt.eta.reset();
  attempt.metrics.clear();
  return attempt;
}

}  // namespace

bool IsUrgent(const Report& previous, const Report& next) {
  if (previous.changed_devices != next.changed_devices) return true;
  if (previous.attempts.size() != next.attempts.size()) return true;
  for (size_t i = 0; i < next.attempts.size(); ++i) {
    if (Steady(previous.attempts[i]) != Steady(next.attempts[i])) return true;
  }
  return false;
}

}  // namespace trainyard::agent
