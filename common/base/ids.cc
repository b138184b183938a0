// Parses names strictly, without signs or leading zeros, so that one resource has one name.
#include "common/base/ids.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"

namespace trainyard {
namespace {

absl::Status BadName(absl::string_view name, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", name, "' is not a resource name of the form ", expected));
}

// Parses a decimal number without sign, leading zeros or spaces, so that one number has one name.
absl::StatusOr<int64_t> ParseNumber(absl::string_view text, absl::string_view name,
                                    absl::string_view expected) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < 0 || absl::StrCat(value) != text) {
    return BadName(name, expected);
  }
  return value;
}

std::vector<absl::string_view> Split(absl::string_view name) {
  return absl::StrSplit(name, '/');
}

}  // namespace

std::string JobName(JobId job) {
  return absl::StrCat("jobs/", job.value);
}

std::string AttemptName(AttemptId attempt) {
  return absl::StrCat(JobName(attempt.job), "/attempts/", attempt.number);
}

std::string CheckpointName(JobId job, int64_t step) {
  return absl::StrCat(JobName(job), "/checkpoints/", step);
}

std::string WorkerName(absl::string_view worker) {
  return absl::StrCat("workers/", worker);
}

absl::StatusOr<JobId> ParseJobName(absl::string_view name) {
  constexpr char kForm[] = "jobs/NUMBER";
  const auto parts = Split(name);
  if (parts.size() != 2 || parts[0] != "jobs") return BadName(name, kForm);
  TY_ASSIGN_OR_RETURN(const int64_t job, ParseNumber(parts[1], name, kForm));
  return JobId{job};
}

absl::StatusOr<AttemptId> ParseAttemptName(absl::string_view name) {
  constexpr char kForm[] = "jobs/NUMBER/attempts/NUMBER";
  const auto parts = Split(name);
  if (parts.size() != 4 || parts[0] != "jobs" || parts[2] != "attempts")
    return BadName(name, kForm);
  TY_ASSIGN_OR_RETURN(const int64_t job, ParseNumber(parts[1], name, kForm));
  TY_ASSIGN_OR_RETURN(const int64_t number, ParseNumber(parts[3], name, kForm));
  if (number > INT32_MAX) return BadName(name, kForm);
  return AttemptId{JobId{job}, static_cast<int32_t>(number)};
}

absl::StatusOr<CheckpointId> ParseCheckpointName(absl::string_view name) {
  constexpr char kForm[] = "jobs/NUMBER/checkpoints/STEP";
  const auto parts = Split(name);
  if (parts.size() != 4 || parts[0] != "jobs" || parts[2] != "checkpoints") {
    return BadName(name, kForm);
  }
  TY_ASSIGN_OR_RETURN(const int64_t job, ParseNumber(parts[1], name, kForm));
  TY_ASSIGN_OR_RETURN(const int64_t step, ParseNumber(parts[3], name, kForm));
  return CheckpointId{JobId{job}, step};
}

absl::StatusOr<std::string> ParseWorkerName(absl::string_view name) {
  const auto parts = Split(name);
  if (parts.size() != 2 || parts[0] != "workers" || parts[1].empty()) {
    return BadName(name, "workers/NAME");
  }
  return std::string(parts[1]);
}

std::string SpecName(const SpecId& id) {
  return id.version == 0 ? absl::StrCat("specs/", id.name)
                         : absl::StrCat("specs/", id.name, "/versions/", id.version);
}

absl::StatusOr<SpecId> ParseSpecName(absl::string_view name) {
  constexpr char kForm[] = "specs/NAME or specs/NAME/versions/NUMBER";
  const auto parts = Split(name);
  const bool has_version = parts.size() == 4 && parts[2] == "versions";
  if ((parts.size() != 2 && !has_version) || parts[0] != "specs" || !IsSpecName(parts[1])) {
    return BadName(name, kForm);
  }
  SpecId id{std::string(parts[1]), 0};
  if (!has_version) return id;
  TY_ASSIGN_OR_RETURN(const int64_t version, ParseNumber(parts[3], name, kForm));
  if (version < 1 || version > std::numeric_limits<int32_t>::max()) return BadName(name, kForm);
  id.version = static_cast<int32_t>(version);
  return id;
}

bool IsSpecName(absl::string_view name) {
  constexpr size_t kBytesMax = 63;
  if (name.empty() || name.size() > kBytesMax || !absl::ascii_isalpha(name.front())) return false;
  if (name == "last" || name == "best" || name == "latest") return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
  });
}

std::string SweepName(int64_t sweep) {
  return absl::StrCat("sweeps/", sweep);
}

std::string TrialName(int64_t sweep, int32_t trial) {
  return absl::StrCat(SweepName(sweep), "/trials/", trial);
}

absl::StatusOr<int64_t> ParseSweepName(absl::string_view name) {
  constexpr char kForm[] = "sweeps/NUMBER";
  const auto parts = Split(name);
  if (parts.size() != 2 || parts[0] != "sweeps") return BadName(name, kForm);
  return ParseNumber(parts[1], name, kForm);
}

}  // namespace trainyard
