// Makes and parses the resource names of the API: `jobs/12`, `jobs/12/attempts/1`,
// `jobs/12/checkpoints/600`, `workers/lab-1`, `specs/resnet/versions/3`.
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

// A version of a saved spec. Versions are numbered from 1; 0 stands for the newest.
struct SpecId {
  std::string name;
  int32_t version = 0;

  friend auto operator<=>(const SpecId&, const SpecId&) = default;
};
std::string SpecName(const SpecId& id);  // specs/resnet/versions/3, or specs/resnet
absl::StatusOr<SpecId> ParseSpecName(absl::string_view name);
// Returns true if a spec may be saved under this name: a letter, then letters, digits, '_', '.' and
// '-', at most 63 in all. The names `last`, `best` and `latest` have another meaning.
bool IsSpecName(absl::string_view name);

// The number of a sweep, from 1.
std::string SweepName(int64_t sweep);                 // sweeps/3
std::string TrialName(int64_t sweep, int32_t trial);  // sweeps/3/trials/7
absl::StatusOr<int64_t> ParseSweepName(absl::string_view name);

}  // namespace trainyard
