// Goes through the jobs from the one that ended last to the one that ended first, and adds up.
// Other turns may come in between: what they change costs at most a deletion that is refused.
#include "server/retention.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/duration.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/spec/byte_size.h"
#include "server/core/lifecycle/job_fsm.h"

namespace trainyard {
namespace {

using core::JobRecord;
using core::Yard;

constexpr char kActor[] = "server";

// Returns the time from which on the job is kept. An imported job had ended before it came.
int64_t KeptSince(const JobRecord& job) {
  return std::max(job.end_us, job.create_us);
}

int64_t CheckpointBytes(const Yard& yard, JobId job) {
  int64_t bytes = 0;
  for (const core::CheckpointRecord* checkpoint : yard.CheckpointsOf(job)) {
    bytes += checkpoint->bytes();
  }
  return bytes;
}

bool IsPinned(const core::Submission& submission) {
  const std::vector<std::string>& tags = submission.tags;
  return submission.retain_us == core::kForever ||
         std::find(tags.begin(), tags.end(), kKeepTag) != tags.end();
}

absl::Status AddLimit(absl::string_view text, KeepRule& rule) {
  const auto [number, unit] = SplitQuantity(text);
  const auto not_twice = [&text](bool is_given) {
    return is_given ? absl::InvalidArgumentError(
                          absl::StrCat("'", text, "' is a second limit of the same kind"))
                    : absl::OkStatus();
  };
  if (unit == "job" || unit == "jobs") {
    TY_RETURN_IF_ERROR(not_twice(rule.jobs != KeepRule().jobs));
    if (!absl::SimpleAtoi(number, &rule.jobs) || rule.jobs < 0) {
      return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no number of jobs"));
    }
    return absl::OkStatus();
  }
  if (const auto bytes = spec::ParseByteSize(text); bytes.ok()) {
    TY_RETURN_IF_ERROR(not_twice(rule.bytes != KeepRule().bytes));
    rule.bytes = bytes->bytes();
    return absl::OkStatus();
  }
  const auto age = ParseDuration(text);
  if (!age.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text,
                     "' is no limit; expected an age such as 90d, a number such as '5000 jobs', a "
                     "size such as 500GiB, several of these with commas, or 'forever'"));
  }
  TY_RETURN_IF_ERROR(not_twice(rule.age != KeepRule().age));
  rule.age = *age;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<KeepRule> ParseKeepRule(absl::string_view text) {
  KeepRule rule;
  if (absl::StripAsciiWhitespace(text) == "forever") return rule;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    TY_RETURN_IF_ERROR(AddLimit(absl::StripAsciiWhitespace(part), rule));
  }
  return rule;
}

RetentionReview::RetentionReview(const KeepRules& rules, int64_t now_us, IsKept is_kept)
    : rules_(rules),
      now_us_(now_us),
      is_kept_(std::move(is_kept)),
      jobs_(rules_.jobs),
      checkpoints_(rules_.checkpoints),
      logs_(rules_.logs),
      metrics_(rules_.metrics) {}

bool RetentionReview::Step(const Yard& yard, size_t max) {
  if (!is_collected_) return Collect(yard, max);
  for (; max > 0 && !ended_.empty(); --max) {
    const JobRecord* job = yard.FindJob(ended_.back().second);
    ended_.pop_back();
    if (job != nullptr) Decide(yard, *job);
  }
  return !ended_.empty();
}

std::vector<core::DeleteJob> RetentionReview::TakeDeletions(size_t max) {
  std::vector<core::DeleteJob> deletions = std::move(deletions_);
  std::reverse(deletions.begin(), deletions.end());
  if (deletions.size() > max) deletions.resize(max);
  return deletions;
}

bool RetentionReview::Collect(const Yard& yard, size_t max) {
  const auto& jobs = yard.snapshot().jobs;
  auto it = jobs.upper_bound(last_);
  for (; it != jobs.end() && max > 0; ++it, --max) {
    const auto& [id, job] = *it;
    last_ = id;
    if (!core::job_fsm::IsFinal(job.state) || job.end_us == 0) continue;
    // Without rules, a job ends only by its own word, and nothing needs to be added up.
    if (rules_.are_forever() && job.submission->retain_us == 0) continue;
    if (IsPinned(*job.submission) || is_kept_(job)) {
      Keep(yard, job);
    } else {
      ended_.emplace_back(KeptSince(job), id);
    }
  }
  if (it != jobs.end()) return true;
  is_collected_ = true;
  std::sort(ended_.begin(), ended_.end());
  return !ended_.empty();
}

void RetentionReview::Keep(const Yard& yard, const JobRecord& job) {
  const Sizes sizes = SizesOf(yard, job);
  jobs_.Count(sizes.sum());
  KeepParts(job, sizes);
}

void RetentionReview::Decide(const Yard& yard, const JobRecord& job) {
  const Sizes sizes = SizesOf(yard, job);
  jobs_.Count(sizes.sum());
  const int64_t retain_us = job.submission->retain_us;
  const bool is_old =
      retain_us > 0 ? KeptSince(job) < now_us_ - retain_us : jobs_.IsOld(job, now_us_);
  if (is_old || jobs_.IsOver()) {
    const core::DeleteJob whole{job.id, {}, kActor};
    if (yard.PlanDeletion(whole).ok()) return deletions_.push_back(whole);
  }
  KeepParts(job, sizes);
  const auto is_over = [&](bool exists, const Budget& budget) {
    return exists && (budget.IsOver() || (retain_us == 0 && budget.IsOld(job, now_us_)));
  };
  const core::JobParts parts = {is_over(sizes.checkpoints > 0, checkpoints_),
                                is_over(sizes.streams.logs > 0, logs_),
                                is_over(sizes.streams.metrics > 0, metrics_)};
  if (!parts.any()) return;
  const core::DeleteJob some{job.id, parts, kActor};
  const auto plan = yard.PlanDeletion(some);
  if (plan.ok() && !plan->empty()) deletions_.push_back(some);
}

RetentionReview::Sizes RetentionReview::SizesOf(const Yard& yard, const JobRecord& job) {
  const core::StreamBytes* streams = yard.FindStreams(job.id);
  const core::CheckpointRecord* outputs = yard.FindCheckpoint({job.id, core::kOutputsStep});
  return {CheckpointBytes(yard, job.id), outputs == nullptr ? 0 : outputs->bytes(),
          streams == nullptr ? core::StreamBytes() : *streams};
}

void RetentionReview::KeepParts(const JobRecord& job, const Sizes& sizes) {
  if (sizes.checkpoints > 0) checkpoints_.Count(sizes.checkpoints);
  if (sizes.streams.logs > 0 && !job.logs_deleted) logs_.Count(sizes.streams.logs);
  if (sizes.streams.metrics > 0 && !job.metrics_deleted) metrics_.Count(sizes.streams.metrics);
}

bool RetentionReview::Budget::IsOld(const JobRecord& job, int64_t now_us) const {
  return rule_.age < absl::InfiniteDuration() &&
         KeptSince(job) < now_us - absl::ToInt64Microseconds(rule_.age);
}

std::vector<JobId> FindUnmeasured(const Yard& yard, int64_t since_us, JobId after, size_t max) {
  std::vector<JobId> found;
  const auto& jobs = yard.snapshot().jobs;
  for (auto it = jobs.upper_bound(after); it != jobs.end() && found.size() < max; ++it) {
    const auto& [id, job] = *it;
    if (job.attempt == 0 || (job.logs_deleted && job.metrics_deleted)) continue;
    const bool has_grown = !core::job_fsm::IsFinal(job.state) || KeptSince(job) >= since_us;
    if (has_grown || yard.FindStreams(id) == nullptr) found.push_back(id);
  }
  return found;
}

}  // namespace trainyard
