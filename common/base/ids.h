// Makes and parses the resource names of the API: `jobs/12`, `jobs/12/attempts/1`,
// `jobs/12/checkpoints/600`, `workers/lab-1`.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// The number of a job. The server gives numbers out from 1 upwards and never reuses one.
struct JobId {
  int64_t value = 0;

  friend auto operator<=>(const JobId&, const JobId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const JobId& id) {
    return H::combine(std::move(h), id.value);
  }
};

// One attempt of a job, numbered from 1.
struct AttemptId {
  JobId job;
  int32_t number = 0;

  friend auto operator<=>(const AttemptId&, const AttemptId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const AttemptId& id) {
    return H::combine(std::move(h), id.job, id.number);
  }
};

std::string JobName(JobId job);                       // jobs/12
std::string AttemptName(AttemptId attempt);           // jobs/12/attempts/1
std::string CheckpointName(JobId job, int64_t step);  // jobs/12/checkpoints/600
std::string WorkerName(absl::string_view worker);     // workers/lab-1

// These are the strict inverses. They return INVALID_ARGUMENT with the value and the expected form
// if `name` is no such name.
absl::StatusOr<JobId> ParseJobName(absl::string_view name);
absl::StatusOr<AttemptId> ParseAttemptName(absl::string_view name);
struct CheckpointId {
  JobId job;
  int64_t step = 0;
};
absl::StatusOr<CheckpointId> ParseCheckpointName(absl::string_view name);
absl::StatusOr<std::string> ParseWorkerName(absl::string_view name);

}  // namespace trainyard
