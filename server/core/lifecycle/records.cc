// Compares records, and answers small questions about them.
#include "server/core/lifecycle/records.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "common/base/check.h"

namespace trainyard::core {
namespace {

// The device type of a share of the CPU. All other types are GPUs.
constexpr absl::string_view kCpuType = "cpu";

bool SameValue(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

}  // namespace

bool operator==(const Progress& a, const Progress& b) {
  const bool is_reported_alike =
      a.report == nullptr || b.report == nullptr ? a.report == b.report : *a.report == *b.report;
  return is_reported_alike && a.step == b.step && a.eta_us == b.eta_us &&
         a.disk_full == b.disk_full;
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
                    job.device_time_us, job.preemptions, job.precision);
  };
  return fields(a) == fields(b);
}

Demand DemandOf(const JobRecord& job) {
  Demand demand = job.submission->demand;
  demand.bf16 = demand.bf16 || job.precision == Precision::kBf16;
  return demand;
}

Precision AutoPrecision(const std::vector<const DeviceRecord*>& devices) {
  TY_CHECK(!devices.empty());
  const bool is_bf16 = std::all_of(devices.begin(), devices.end(), [&](const auto* device) {
    return device->bf16 && device->type != kCpuType && device->type == devices.front()->type;
  });
  return is_bf16 ? Precision::kBf16 : Precision::kF32;
}

const AttemptPart* FindPart(const AttemptRecord& attempt, absl::string_view worker) {
  for (const AttemptPart& part : attempt.parts) {
    if (part.worker == worker) return &part;
  }
  return nullptr;
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
