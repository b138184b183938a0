// Goes through the jobs from the one that ended last to the one that ended first, and adds up.
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

// Adds up one kind of thing.
class Budget {
 public:
  explicit Budget(const KeepRule& rule) : rule_(rule) {}

  void Count(int64_t bytes) {
    ++jobs_;
    bytes_ += bytes;
  }
  // Returns true if the things of a job that was counted have no room any more.
  bool IsOver() const { return jobs_ > rule_.jobs || bytes_ > rule_.bytes; }
  bool IsOld(const JobRecord& job, int64_t now_us) const {
    return rule_.age < absl::InfiniteDuration() &&
           job.end_us < now_us - absl::ToInt64Microseconds(rule_.age);
  }

 private:
  const KeepRule& rule_;
  int64_t jobs_ = 0;
  int64_t bytes_ = 0;
};

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

// Decides about one job after the other.
class Review {
 public:
  Review(const Yard& yard, const KeepRules& rules, int64_t now_us)
      : yard_(yard),
        now_us_(now_us),
        jobs_(rules.jobs),
        checkpoints_(rules.checkpoints),
        logs_(rules.logs),
        metrics_(rules.metrics) {}

  // Counts a job that stays.
  void Keep(const JobRecord& job) {
    const Sizes sizes = SizesOf(job);
    jobs_.Count(sizes.checkpoints + sizes.streams.sum());
    KeepParts(job, sizes);
  }

  // Counts a job, and adds what must be deleted of it.
  void Decide(const JobRecord& job, std::vector<core::DeleteJob>& deletions) {
    const Sizes sizes = SizesOf(job);
    jobs_.Count(sizes.checkpoints + sizes.streams.sum());
    const int64_t retain_us = job.submission->retain_us;
    const bool is_old =
        retain_us > 0 ? job.end_us < now_us_ - retain_us : jobs_.IsOld(job, now_us_);
    if (is_old || jobs_.IsOver()) {
      const core::DeleteJob whole{job.id, {}, kActor};
      if (yard_.PlanDeletion(whole).ok()) return deletions.push_back(whole);
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
    const auto plan = yard_.PlanDeletion(some);
    if (plan.ok() && !plan->empty()) deletions.push_back(some);
  }

 private:
  static constexpr char kActor[] = "server";

  struct Sizes {
    int64_t checkpoints = 0;
    core::StreamBytes streams;
  };
  Sizes SizesOf(const JobRecord& job) const {
    const core::StreamBytes* streams = yard_.FindStreams(job.id);
    return {CheckpointBytes(yard_, job.id), streams == nullptr ? core::StreamBytes() : *streams};
  }
  void KeepParts(const JobRecord& job, const Sizes& sizes) {
    if (sizes.checkpoints > 0) checkpoints_.Count(sizes.checkpoints);
    if (sizes.streams.logs > 0 && !job.logs_deleted) logs_.Count(sizes.streams.logs);
    if (sizes.streams.metrics > 0 && !job.metrics_deleted) metrics_.Count(sizes.streams.metrics);
  }

  const Yard& yard_;
  const int64_t now_us_;
  Budget jobs_;
  Budget checkpoints_;
  Budget logs_;
  Budget metrics_;
};

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

std::vector<core::DeleteJob> FindExpired(const Yard& yard, const KeepRules& rules, int64_t now_us,
                                         size_t max) {
  Review review(yard, rules, now_us);
  std::vector<const JobRecord*> ended;
  for (const auto& [id, job] : yard.snapshot().jobs) {
    if (!core::job_fsm::IsFinal(job.state) || job.end_us == 0) continue;
    // Without rules, a job ends only by its own word, and nothing needs to be added up.
    if (rules.are_forever() && job.submission->retain_us == 0) continue;
    if (IsPinned(*job.submission)) {
      review.Keep(job);
    } else {
      ended.push_back(&job);
    }
  }
  std::sort(ended.begin(), ended.end(), [](const JobRecord* a, const JobRecord* b) {
    return std::pair(a->end_us, a->id) > std::pair(b->end_us, b->id);
  });
  std::vector<core::DeleteJob> deletions;
  for (const JobRecord* job : ended) review.Decide(*job, deletions);
  std::reverse(deletions.begin(), deletions.end());
  if (deletions.size() > max) deletions.resize(max);
  return deletions;
}

std::vector<JobId> FindUnmeasured(const Yard& yard, int64_t since_us, JobId after, size_t max) {
  std::vector<JobId> found;
  const auto& jobs = yard.snapshot().jobs;
  for (auto it = jobs.upper_bound(after); it != jobs.end() && found.size() < max; ++it) {
    const auto& [id, job] = *it;
    if (job.attempt == 0 || (job.logs_deleted && job.metrics_deleted)) continue;
    const bool has_grown = !core::job_fsm::IsFinal(job.state) || job.end_us >= since_us;
    if (has_grown || yard.FindStreams(id) == nullptr) found.push_back(id);
  }
  return found;
}

}  // namespace trainyard
