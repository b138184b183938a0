#include "server/core/lifecycle/records.h"

#include <cmath>
#include <tuple>

namespace trainyard::core {
namespace {

bool SameValue(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

}  // namespace

bool operator==(const Progress& a, const Progress& b) {
  const bool is_hosted_alike = a.hosting == nullptr || b.hosting == nullptr
                                   ? a.hosting == b.hosting
                                   : *a.hosting == *b.hosting;
  return is_hosted_alike &&
         std::tie(a.step, a.total_steps, a.epoch, a.epochs, a.eta_us) ==
             std::tie(b.step, b.total_steps, b.epoch, b.epochs, b.eta_us) &&
         SameValue(a.samples_per_s, b.samples_per_s) &&
         SameValue(a.data_wait_fraction, b.data_wait_fraction);
}

bool operator==(const MetricValues& a, const MetricValues& b) {
  if (a.values.size() != b.values.size()) return false;
  auto other = b.values.begin();
  for (const auto& [name, value] : a.values) {
    if (name != other->first || !SameValue(value, other->second)) return false;
    ++other;
  }
  return true;
}

bool operator==(const JobRecord& a, const JobRecord& b) {
  const auto fields = [](const JobRecord& job) {
    return std::tie(job.id, *job.submission, job.state, job.stop_reason, job.attempt,
                    job.fencing_token, job.retries, job.failures, job.run_time_us, job.create_us,
                    job.start_us, job.end_us, job.progress, job.metrics, job.data_digest,
                    job.model_digest, job.worker_version, job.revision, job.array,
                    job.device_time_us, job.preemptions);
  };
  return fields(a) == fields(b);
}

bool IsBetter(const Submission& submission, const CheckpointRecord& a, const CheckpointRecord& b) {
  if (!a.evaluation.has_value() || !b.evaluation.has_value()) return a.evaluation.has_value();
  const auto score = [&submission](const CheckpointRecord& checkpoint) {
    return submission.judged_by_loss ? -checkpoint.evaluation->loss
                                     : checkpoint.evaluation->accuracy;
  };
  if (score(a) != score(b)) return score(a) > score(b);
  return a.id.step < b.id.step;
}

std::string EventParent(absl::string_view resource) {
  const size_t first = resource.find('/');
  if (first == absl::string_view::npos) return std::string(resource);
  return std::string(resource.substr(0, resource.find('/', first + 1)));
}

}  // namespace trainyard::core
