// Replays a workload in virtual time: the yard decides, and a simulated pool runs the jobs that it
// places.
#include "tests/replay/replay.h"

#include <time.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace trainyard::replay {
namespace {

// This is far more than any trace takes, so a replay that exceeds it does not end.
constexpr int64_t kLongestReplay = 400 * (24 * core::kHour);
constexpr int kTurnsAtOnceMax = 1000;

core::Now At(int64_t us) {
  return {kStartOfTrace + us, us};
}

// The processor time of this thread. Other load on the machine does not change it.
int64_t ProcessorTime() {
  timespec time{};
  TY_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Measures the passes of another policy.
class TimedPolicy : public core::Policy {
 public:
  TimedPolicy(std::unique_ptr<const core::Policy> policy, std::vector<PassTime>& passes)
      : policy_(std::move(policy)), passes_(passes) {}

  core::Plan MakePlan(const core::PassInput& input) const override {
    const int64_t start_ns = ProcessorTime();
    core::Plan plan = policy_->MakePlan(input);
    passes_.push_back({static_cast<int64_t>(input.queue.size()), ProcessorTime() - start_ns});
    return plan;
  }

 private:
  std::unique_ptr<const core::Policy> policy_;
  std::vector<PassTime>& passes_;
};

class Replayer {
 public:
  Replayer(const Trace& trace, const ReplayOptions& options)
      : trace_(trace),
        options_(options),
        yard_(MakeConfig(options.config), core::Snapshot{}, At(0),
              std::make_unique<TimedPolicy>(core::MakePolicy(options.policy), result_.passes)),
        pool_(trace, yard_),
        meter_(trace),
        open_after_(trace.jobs.size(), 0),
        left_(trace.jobs.size(), 0),
        ready_us_(trace.jobs.size(), 0),
        dependents_(trace.jobs.size()) {}

  absl::StatusOr<ReplayResult> Run() {
    pool_.Join(At(0));
    for (const core::QuotaRecord& quota : trace_.quotas) {
      TY_RETURN_IF_ERROR(yard_.Apply(core::SetQuota{quota, "replay"}, At(0)).status());
    }
    if (!trace_.jobs.empty()) result_.last_submit_us = trace_.jobs.back().submit_us;
    while (true) {
      TY_RETURN_IF_ERROR(Turn());
      if (next_job_ == trace_.jobs.size() && unfinished_ == 0) break;
      const std::optional<int64_t> next = NextTime();
      if (!next.has_value() || *next > kLongestReplay) {
        return absl::InternalError(absl::StrCat("the replay does not end: ", unfinished_,
                                                " jobs are unfinished after ",
                                                now_us_ / core::kSecond, " s; ", WhyWaiting()));
      }
      MoveTo((*next + options_.tick_us - 1) / options_.tick_us * options_.tick_us);
      if (turns_now_ > kTurnsAtOnceMax) {
        return absl::InternalError(
            absl::StrCat("the replay stands still at ", now_us_ / core::kSecond, " s"));
      }
    }
    Collect();
    return std::move(result_);
  }

 private:
  static core::Config MakeConfig(core::Config config) {
    config.lease_us = 2 * kLongestReplay;
    return config;
  }

  std::optional<int64_t> NextTime() const {
    std::optional<int64_t> next = pool_.NextEvent();
    const auto take = [&next](int64_t at_us) {
      if (!next.has_value() || at_us < *next) next = at_us;
    };
    if (next_job_ < trace_.jobs.size()) take(trace_.jobs[next_job_].submit_us);
    if (!begins_.empty()) take(begins_.begin()->first);
    // A renewed lease by itself is no news.
    if (const auto deadline = yard_.NextDeadline(); deadline && *deadline < kLongestReplay) {
      take(*deadline);
    }
    return next;
  }

  void MoveTo(int64_t next_us) {
    if (next_us <= now_us_) {
      ++turns_now_;
      return;
    }
    if (now_us_ <= result_.last_submit_us && result_.last_submit_us < next_us) {
      result_.work_until_last_submit_us = pool_.WorkStanding(result_.last_submit_us);
    }
    now_us_ = next_us;
    turns_now_ = 0;
  }

  absl::Status Turn() {
    meter_.AdvanceTo(now_us_);
    pool_.Report(At(now_us_));
    while (next_job_ < trace_.jobs.size() && trace_.jobs[next_job_].submit_us <= now_us_) {
      TY_RETURN_IF_ERROR(Submit(next_job_));
      ++next_job_;
    }
    while (!begins_.empty() && begins_.begin()->first <= now_us_) {
      OpenOne(begins_.begin()->second);
      begins_.erase(begins_.begin());
    }
    const core::Turn turn = yard_.Settle(At(now_us_));
    ++result_.turns;
    Note(turn.delta);
    pool_.Obey(turn.desired_changed, At(now_us_));
    return absl::OkStatus();
  }

  absl::Status Submit(size_t index) {
    const TraceJob& job = trace_.jobs[index];
    auto submission = std::make_shared<core::Submission>();
    // A trace says what was submitted elsewhere, and its jobs wait for what is missing here.
    submission->wait_for_devices = true;
    submission->uid = absl::StrCat(index + 1);
    submission->name = submission->uid;
    submission->user = job.user;
    submission->project = job.project;
    submission->demand = job.demand;
    submission->priority = job.priority;
    submission->time_limit_us = job.time_limit_us;
    submission->preemptible = job.preemptible;
    submission->array_size = job.array_size;
    submission->array_parallel = job.array_parallel;
    if (job.begin_us > 0) submission->not_before_us = At(job.begin_us).wall_us;
    for (const int64_t other : job.after) AddDependency(index, other, false, *submission);
    for (const int64_t other : job.after_ok) AddDependency(index, other, true, *submission);
    if (job.begin_us > now_us_) {
      ++open_after_[index];
      begins_.insert({job.begin_us, index});
    }
    const auto reply = yard_.Apply(core::SubmitJob{submission, "", "", job.user}, At(now_us_));
    TY_RETURN_IF_ERROR(reply.status());
    first_job_.push_back(reply->job);
    pool_.AddJob(reply->job, static_cast<int64_t>(index));
    trace_jobs_.resize(static_cast<size_t>(reply->job.value + job.size()), index);
    left_[index] = job.size();
    unfinished_ += job.size();
    if (open_after_[index] == 0) Open(index);
    return absl::OkStatus();
  }

  // A command for an array applies to all of its jobs.
  void AddDependency(size_t index, int64_t place, bool ok, core::Submission& submission) {
    const auto other = static_cast<size_t>(place - 1);
    for (int32_t i = 0; i < trace_.jobs[other].size(); ++i) {
      submission.dependencies.push_back({JobId{first_job_[other].value + i}, ok});
    }
    if (left_[other] == 0) return;
    ++open_after_[index];
    dependents_[other].push_back(index);
  }

  void OpenOne(size_t index) {
    if (--open_after_[index] == 0) Open(index);
  }
  void Open(size_t index) {
    ready_us_[index] = std::max(now_us_, trace_.jobs[index].submit_us);
    meter_.Open(static_cast<int64_t>(index));
  }

  // Records the changes of the turn: which jobs hold devices, and which have ended.
  void Note(const core::Delta& delta) {
    if (options_.on_event) {
      for (const core::EventRecord& event : delta.events) options_.on_event(event);
    }
    for (const core::AttemptRecord& attempt : delta.attempts) {
      const bool is_over = core::attempt_fsm::IsFinal(attempt.state);
      meter_.Holds(attempt.id, static_cast<int64_t>(TraceJobOf(attempt.id.job)),
                   is_over ? 0 : static_cast<int64_t>(attempt.ranks.size()));
    }
    for (const core::JobRecord& job : delta.jobs) {
      if (!core::job_fsm::IsFinal(job.state)) continue;
      const size_t index = TraceJobOf(job.id);
      if (!ended_.insert(job.id).second) continue;
      --left_[index];
      --unfinished_;
      meter_.Ended(static_cast<int64_t>(index), 1);
      result_.makespan_us = now_us_;
      if (left_[index] > 0) continue;
      for (const size_t other : std::exchange(dependents_[index], {})) OpenOne(other);
    }
  }

  size_t TraceJobOf(JobId job) const { return trace_jobs_.at(static_cast<size_t>(job.value)); }

  // The reasons of the first job that waits.
  std::string WhyWaiting() const {
    for (const auto& [id, job] : yard_.snapshot().jobs) {
      if (!std::holds_alternative<core::job_fsm::Queued>(job.state)) continue;
      const std::vector<std::string> reasons = yard_.QueueReasons(id);
      return absl::StrCat(JobName(id), " (job ", TraceJobOf(id) + 1, " of the trace) waits: ",
                          reasons.empty() ? "nobody knows why" : reasons.front());
    }
    return "none of them waits";
  }

  void Collect() {
    const core::Snapshot& snapshot = yard_.snapshot();
    for (const auto& [id, job] : snapshot.jobs) {
      JobResult& result = result_.jobs.emplace_back();
      const size_t index = TraceJobOf(id);
      result.trace_job = static_cast<int64_t>(index);
      result.state = std::string(core::job_fsm::Name(job.state));
      result.ready_us = ready_us_[index];
      const auto first = snapshot.attempts.find({id, 1});
      if (first != snapshot.attempts.end()) {
        result.placed_us = first->second.create_us - kStartOfTrace;
      }
      result.end_us = job.end_us - kStartOfTrace;
      result.device_time_us = job.device_time_us;
      result.lost_us = pool_.LostBy(id);
      result.preemptions = job.preemptions;
    }
    result_.shares = meter_.Shares();
    result_.preempted = pool_.preempted();
    result_.resized = pool_.resized();
  }

  const Trace& trace_;
  const ReplayOptions& options_;
  ReplayResult result_;
  core::Yard yard_;
  SimulatedPool pool_;
  ShareMeter meter_;
  int64_t now_us_ = 0;
  size_t next_job_ = 0;
  int turns_now_ = 0;  // since time has moved
  int64_t unfinished_ = 0;
  std::set<JobId> ended_;
  std::vector<JobId> first_job_;     // by trace job
  std::vector<size_t> trace_jobs_;   // by JobId
  std::vector<int32_t> open_after_;  // reasons that still hold it back: a time, other jobs
  std::vector<int64_t> left_;        // unfinished jobs of it
  std::vector<int64_t> ready_us_;
  std::vector<std::vector<size_t>> dependents_;
  std::multimap<int64_t, size_t> begins_;
};

}  // namespace

bool ReplayResult::SameHistory(const ReplayResult& other) const {
  return jobs == other.jobs && shares == other.shares && makespan_us == other.makespan_us &&
         work_until_last_submit_us == other.work_until_last_submit_us &&
         preempted == other.preempted && resized == other.resized && turns == other.turns &&
         passes.size() == other.passes.size();
}

absl::StatusOr<ReplayResult> Replay(const Trace& trace, const ReplayOptions& options) {
  return Replayer(trace, options).Run();
}

}  // namespace trainyard::replay
