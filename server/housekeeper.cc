// Sleeps most of the time.
#include "server/housekeeper.h"

#include <algorithm>
#include <future>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"
#include "server/retention.h"

namespace trainyard {
namespace {

// Memory grows by a gigabyte a second at most.
constexpr absl::Duration kMemoryInterval = absl::Seconds(1);
constexpr absl::Duration kDeleteIntervalMax = absl::Minutes(1);
constexpr absl::Duration kDeleteIntervalMin = absl::Milliseconds(100);
// The jobs of one round are few, so that those who ask for something need not wait for them.
constexpr size_t kDeletedMax = 100;
// The clocks may differ by this much because of corrections, which never set the clock.
constexpr absl::Duration kClockSlack = absl::Hours(1);

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

void Housekeeper::Run() {
  const absl::Duration interval =
      std::clamp(options_.keep_finished_jobs / 10, kDeleteIntervalMin, kDeleteIntervalMax);
  absl::Duration delete_uptime = options_.keep_finished_jobs == absl::InfiniteDuration()
                                     ? absl::InfiniteDuration()
                                     : clock_.Uptime() + interval;
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
    if (clock_.Uptime() < delete_uptime) continue;
    delete_uptime = clock_.Uptime() + (DeleteSome() ? kDeleteIntervalMin : interval);
  }
}

bool Housekeeper::DeleteSome() {
  if (WasClockSet()) return false;
  const int64_t before_us = absl::ToUnixMicros(clock_.Now() - options_.keep_finished_jobs);
  std::promise<std::vector<JobId>> found;
  runtime_.Read([&found, before_us](absl::StatusOr<const core::Yard*> yard) {
    found.set_value(yard.ok() ? FindEndedBefore(**yard, before_us, kDeletedMax)
                              : std::vector<JobId>());
  });
  const std::vector<JobId> jobs = found.get_future().get();
  if (jobs.empty()) return false;
  std::vector<JobId> deleted;
  for (const JobId job : jobs) {
    std::promise<absl::Status> done;
    runtime_.Post(
        core::DeleteJob{job, /*checkpoints_only=*/false, "server"},
        [&done](const absl::StatusOr<core::Reply>& reply) { done.set_value(reply.status()); });
    const absl::Status status = done.get_future().get();
    if (status.ok()) deleted.push_back(job);
  }
  if (deleted.empty()) return false;
  LogInfo("deleted jobs that ended long ago", {{"jobs", absl::StrCat(deleted.size())},
                                               {"first", JobName(deleted.front())},
                                               {"last", JobName(deleted.back())}});
  return jobs.size() == kDeletedMax;
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
