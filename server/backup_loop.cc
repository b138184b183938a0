// Waits for signals between the rounds, so that none is cut off in the middle.
#include "server/backup_loop.h"

#include <algorithm>
#include <csignal>
#include <ctime>
#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/duration.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "server/backup/continuous.h"
#include "server/store/sqlite/sqlite_store.h"

namespace trainyard {
namespace {

constexpr absl::Duration kReportEvery = absl::Hours(1);
constexpr absl::Duration kTellAgain = absl::Minutes(10);
// A server that is told to end at the same time ends within this time.
constexpr absl::Duration kServerEnds = absl::Seconds(5);
constexpr absl::Duration kLook = absl::Milliseconds(50);

// Blocks the signals that end a program, and waits for them.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~StopSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Returns true if one has come within this time.
  bool Wait(absl::Duration time) const {
    const timespec limit = absl::ToTimespec(time);
    return sigtimedwait(&signals_, nullptr, &limit) > 0;
  }

 private:
  sigset_t signals_;
  sigset_t before_;
};

// Says what people want to know of many rounds: little, unless something is wrong.
class Reporter {
 public:
  Reporter(const std::string& place, absl::Time now) : place_(place), reported_(now) {}

  void Take(const absl::StatusOr<backup::Continuous::Round>& round, absl::Time now) {
    if (!round.ok()) return TakeFailure(round.status(), now);
    if (failing_since_ != absl::InfiniteFuture()) {
      std::cout << place_ << " is up to date again, after " << DurationText(now - failing_since_)
                << std::endl;
      failing_since_ = absl::InfiniteFuture();
      failure_ = absl::OkStatus();
    }
    behind_ = std::max(behind_, round->behind);
    TakeLoss(*round);
    if (!round->pruned.ok()) {
      std::cerr << "trainyard-server: old versions in " << place_
                << " stay for an hour more: " << round->pruned.message() << std::endl;
    }
    if (!round->pushed.has_value()) return;
    ++versions_;
    sent_bytes_ += round->pushed->sent_bytes;
    if (is_first_) {
      std::cout << place_ << ": version " << round->pushed->version << ", "
                << FormatBytes(sent_bytes_) << " sent. Others follow when something changes"
                << std::endl;
    }
    is_first_ = false;
  }

  bool IsDue(absl::Time now) const { return now - reported_ >= kReportEvery; }

  void Report(absl::Time now) {
    std::cout << place_ << ": in " << DurationText(now - reported_) << ", "
              << FormatCount(versions_) << (versions_ == 1 ? " version" : " versions") << ", "
              << FormatBytes(sent_bytes_) << " sent, at most " << DurationText(behind_) << " behind"
              << std::endl;
    reported_ = now;
    versions_ = 0;
    sent_bytes_ = 0;
    behind_ = absl::ZeroDuration();
  }

 private:
  // A failure is told once, although its text may differ each time, since it may name a snapshot.
  void TakeFailure(const absl::Status& status, absl::Time now) {
    failing_since_ = std::min(failing_since_, now);
    const bool is_same =
        status.code() == failure_.code() && ErrorReason(status) == ErrorReason(failure_);
    if (is_same && now - told_ < kTellAgain) return;
    failure_ = status;
    told_ = now;
    std::cerr << "trainyard-server: " << place_
              << " gets nothing new, and this is tried again: " << status.message() << std::endl;
  }

  void TakeLoss(const backup::Continuous::Round& round) {
    if (round.lost.size() == lost_) return;
    lost_ = round.lost.size();
    if (lost_ == 0) return;
    std::cerr
        << "trainyard-server: the state directory has lost " << lost_
        << (lost_ == 1 ? " file" : " files") << " of checkpoints: '" << round.lost.front()
        << "'; run `trainyard-server check`, and take them from an older backup. No version is "
           "removed until then"
        << std::endl;
  }

  const std::string place_;
  absl::Time reported_;
  absl::Time failing_since_ = absl::InfiniteFuture();
  absl::Status failure_;
  absl::Time told_ = absl::InfinitePast();  // of the failure
  absl::Duration behind_;                   // at most, since the last report
  int64_t versions_ = 0;
  int64_t sent_bytes_ = 0;
  size_t lost_ = 0;
  bool is_first_ = true;
};

// Waits for the first start of the server. Returns nothing if a signal has come before it.
absl::StatusOr<std::optional<DirectoryLock>> AwaitDatabase(const BackupLoopOptions& options,
                                                           const StopSignals& signals) {
  // A server makes it once the database has its tables.
  const std::string mark =
      JoinPath(options.backup.state_dir, absl::StrCat("trainyard.db", store::kCommittedSuffix));
  for (bool is_first = true; !FileExists(mark); is_first = false) {
    if (is_first) {
      std::cout << "Waiting for the first start of a server in " << options.backup.state_dir
                << std::endl;
    }
    if (signals.Wait(options.every)) return std::optional<DirectoryLock>();
  }
  TY_ASSIGN_OR_RETURN(DirectoryLock lock, backup::LockSnapshots(options.backup));
  return std::optional<DirectoryLock>(std::move(lock));
}

// Both programs may be told to end at once, and the last commits of the server are to be sent too.
// A second signal ends the wait.
void AwaitEndOfServer(const std::string& state_dir, const StopSignals& signals, Clock& clock) {
  const absl::Duration begin = clock.Uptime();
  while (FileExists(JoinPath(state_dir, "ready")) && clock.Uptime() - begin < kServerEnds) {
    if (signals.Wait(kLook)) return;
  }
}

}  // namespace

absl::Status BackUpUntilStopped(const BackupLoopOptions& options) {
  const StopSignals signals;
  Clock& clock = *Clock::Real();
  TY_ASSIGN_OR_RETURN(const std::optional<DirectoryLock> lock, AwaitDatabase(options, signals));
  if (!lock.has_value()) return absl::OkStatus();
  const std::string& place = options.bucket.place;
  TY_ASSIGN_OR_RETURN(const OpenedBucket bucket,
                      OpenBucket(options.bucket, /*is_for_writing=*/true));
  TellOfConditions(bucket, place);
  backup::ContinuousOptions continuous{options.backup, place};
  if (options.backup.keep > 0) continuous.versions = options.backup.keep;
  backup::Continuous rounds(std::move(continuous), *bucket.store, clock);
  Reporter reporter(place, clock.Now());
  bool is_stopped = false;
  for (bool is_first = true;; is_first = false) {
    const absl::Duration begin = clock.Uptime();
    const auto round = rounds.Turn(*lock);
    // A bucket that takes nothing from the beginning is a mistake that somebody is there to see,
    // and two programs that write to one folder are one at any time.
    const bool is_mistake = is_first || ErrorReason(round.status()) == backup::kOtherWriter;
    if (is_mistake) TY_RETURN_IF_ERROR(round.status());
    reporter.Take(round, clock.Now());
    if (is_stopped) {
      reporter.Report(clock.Now());
      return round.status();
    }
    if (reporter.IsDue(clock.Now())) reporter.Report(clock.Now());
    is_stopped = signals.Wait(backup::PauseAfter(clock.Uptime() - begin, options.every));
    if (is_stopped) AwaitEndOfServer(options.backup.state_dir, signals, clock);
  }
}

}  // namespace trainyard
