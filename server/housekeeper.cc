// Sleeps most of the time.
#include "server/housekeeper.h"

#include <algorithm>
#include <future>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace trainyard {
namespace {

// Memory grows by a gigabyte a second at most.
constexpr absl::Duration kMemoryInterval = absl::Seconds(1);
constexpr absl::Duration kMeasureInterval = absl::Seconds(10);
constexpr absl::Duration kDeleteIntervalMax = absl::Minutes(1);
constexpr absl::Duration kDeleteIntervalMin = absl::Milliseconds(100);
// The jobs of one round are few, so that those who ask for something need not wait for them.
constexpr size_t kDeletedMax = 100;
// A review looks at all jobs, so what it finds lasts for many rounds.
constexpr size_t kFoundMax = 100'000;
// The jobs of one step of a review, which takes some milliseconds of the turn loop.
constexpr size_t kReviewedMax = 4000;
constexpr size_t kMeasuredMax = 1000;
// Workers may send the last of a log this long after the end of the job.
constexpr absl::Duration kLateMax = absl::Minutes(5);
// The clocks may differ by this much because of corrections, which never set the clock.
constexpr absl::Duration kClockSlack = absl::Hours(1);

// Returns what `ask` returns for the yard, or a default value if the server stops.
template <typename Answer, typename Ask>
Answer AskYard(runtime::Runtime& runtime, const Ask& ask) {
  std::promise<Answer> answer;
  runtime.Read([&](absl::StatusOr<const core::Yard*> yard) {
    answer.set_value(yard.ok() ? ask(**yard) : Answer());
  });
  return answer.get_future().get();
}

absl::Status PostAndWait(runtime::Runtime& runtime, core::Input input) {
  std::promise<absl::Status> done;
  runtime.Post(std::move(input), [&done](const absl::StatusOr<core::Reply>& reply) {
    done.set_value(reply.status());
  });
  return done.get_future().get();
}

}  // namespace

Housekeeper::Housekeeper(Options options, runtime::Runtime& runtime, Clock& clock)
    : options_(std::move(options)),
      runtime_(runtime),
      clock_(clock),
      memory_(options_.memory, options_.memory_high),
      boot_time_(clock.Now() - absl::UnixEpoch() - clock.Uptime()) {
  thread_ = std::thread([this] { Run(); });
}

Housekeeper::~Housekeeper() {
  {
    const MutexLock lock(&mutex_);
    stop_ = true;
  }
  stopped_.SignalAll();
  thread_.join();
}

bool Housekeeper::IsStopped() {
  const MutexLock lock(&mutex_);
  return stop_;
}

void Housekeeper::Run() {
  absl::Duration least_age = options_.keep.jobs.age;
  for (const KeepRule* rule :
       {&options_.keep.checkpoints, &options_.keep.logs, &options_.keep.metrics}) {
    least_age = std::min(least_age, rule->age);
  }
  const absl::Duration interval =
      std::clamp(least_age / 10, kDeleteIntervalMin, kDeleteIntervalMax);
  absl::Duration measure_uptime = clock_.Uptime();
  absl::Duration delete_uptime = clock_.Uptime() + interval;
  while (true) {
    {
      const MutexLock lock(&mutex_);
      if (!stop_) {
        stopped_.WaitWithTimeout(&mutex_, std::clamp(delete_uptime - clock_.Uptime(),
                                                     kDeleteIntervalMin, kMemoryInterval));
      }
      if (stop_) return;
    }
    memory_.Look();
    options_.sweep_connections();
    if (clock_.Uptime() >= std::min(measure_uptime, delete_uptime)) {
      Measure();
      options_.sweep_code();
      measure_uptime = clock_.Uptime() + kMeasureInterval;
    }
    if (clock_.Uptime() < delete_uptime) continue;
    delete_uptime = clock_.Uptime() + (DeleteSome() ? kDeleteIntervalMin : interval);
  }
}

void Housekeeper::Measure() {
  const int64_t since_us = absl::ToUnixMicros(measured_ - kLateMax);
  measured_ = clock_.Now();
  JobId last;
  for (bool has_more = true; has_more && !IsStopped();) {
    const std::vector<JobId> jobs = AskYard<std::vector<JobId>>(
        runtime_,
        [&](const core::Yard& yard) { return FindUnmeasured(yard, since_us, last, kMeasuredMax); });
    if (jobs.empty()) return;
    has_more = jobs.size() == kMeasuredMax;
    last = jobs.back();
    core::NoteStreams note;
    for (const JobId job : jobs) {
      const auto bytes = options_.measure(job);
      if (bytes.ok()) note.bytes[job] = *bytes;
    }
    (void)PostAndWait(runtime_, std::move(note));  // the next round does it again
  }
}

bool Housekeeper::DeleteSome() {
  if (WasClockSet()) return false;
  if (found_.empty()) Review();
  std::vector<JobId> jobs;
  std::vector<JobId> parts;
  for (size_t count = 0; count < kDeletedMax && !found_.empty() && !IsStopped(); ++count) {
    const core::DeleteJob deletion = found_.front();
    found_.pop_front();
    options_.before_deletion(deletion);
    if (!PostAndWait(runtime_, deletion).ok()) continue;
    (deletion.parts.any() ? parts : jobs).push_back(deletion.job);
  }
  const auto tell = [](const std::vector<JobId>& deleted, absl::string_view what) {
    if (deleted.empty()) return;
    LogInfo(what, {{"jobs", absl::StrCat(deleted.size())},
                   {"first", JobName(deleted.front())},
                   {"last", JobName(deleted.back())}});
  };
  tell(jobs, "deleted jobs that are kept no longer");
  tell(parts, "deleted checkpoints, logs or metrics that are kept no longer; their jobs stay");
  return !found_.empty();
}

void Housekeeper::Review() {
  RetentionReview review(options_.keep, absl::ToUnixMicros(clock_.Now()), options_.is_kept);
  const auto step = [&review](const core::Yard& yard) { return review.Step(yard, kReviewedMax); };
  while (AskYard<bool>(runtime_, step)) {
    if (IsStopped()) return;
  }
  const std::vector<core::DeleteJob> found = review.TakeDeletions(kFoundMax);
  found_.assign(found.begin(), found.end());
}

bool Housekeeper::WasClockSet() {
  const absl::Duration boot_time = clock_.Now() - absl::UnixEpoch() - clock_.Uptime();
  const absl::Duration moved = absl::AbsDuration(boot_time - boot_time_);
  if (moved <= kClockSlack) return false;
  if (!warned_) {
    LogWarning(
        "the clock was set while the server runs, so no old jobs are deleted until it starts again",
        {{"by", absl::FormatDuration(boot_time - boot_time_)}});
  }
  warned_ = true;
  return true;
}

}  // namespace trainyard
