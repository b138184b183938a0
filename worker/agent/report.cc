// Distinguishes urgent news from news that can wait.
#include "worker/agent/report.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace trainyard::agent {
namespace {

// Returns the attempt without what changes with every step.
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

std::vector<Device> Steady(std::vector<Device> devices) {
  for (Device& device : devices) device.usage.reset();
  // If all GPUs are well, as they were registered, their usage is no news.
  const bool all_well = std::all_of(devices.begin(), devices.end(), [](const Device& device) {
    return device.health == Device::Health::kOk;
  });
  if (all_well) devices.clear();
  return devices;
}

}  // namespace

bool IsUrgent(const Report& previous, const Report& next) {
  if (Steady(previous.changed_devices) != Steady(next.changed_devices)) return true;
  if (previous.datasets != next.datasets) return true;
  if (previous.refused_users != next.refused_users) return true;
  if (previous.leave_within != next.leave_within) return true;
  if (previous.attempts.size() != next.attempts.size()) return true;
  for (size_t i = 0; i < next.attempts.size(); ++i) {
    if (Steady(previous.attempts[i]) != Steady(next.attempts[i])) return true;
  }
  return false;
}

}  // namespace trainyard::agent
