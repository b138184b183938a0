#include "worker/supervisor/supervisor_core.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/planted_bug.h"

namespace trainyard::supervisor {
namespace {

using run_dir::Outcome;

// What a trainer reports when it ended because another rank had: a consequence, never the cause.
constexpr char kReasonPeerLost[] = "PEER_LOST";

void ExplainBadEnd(const RankEnd& end, run_dir::RankExit& exit) {
  if (end.signal > 0) {
    exit.reason = "KILLED_BY_SIGNAL";
    exit.message = absl::StrCat("rank ", end.rank, " was killed by signal ", end.signal, " (",
                                strsignal(end.signal), ")");
    if (end.signal == SIGKILL) {
      absl::StrAppend(&exit.message, "; the system does that when memory runs out");
    }
  } else {
    exit.reason = "EXITED_BADLY";
    exit.message = absl::StrCat("rank ", end.rank, " exited with code ", end.exit_code,
                                " and left no result; its log tells more");
  }
}

}  // namespace

run_dir::RankExit JudgeRank(const RankEnd& end, bool stopping) {
  run_dir::RankExit exit;
  exit.rank = end.rank;
  exit.exit_code = end.exit_code;
  exit.signal = end.signal;
  exit.end_time_us = end.end_time_us;
  exit.outcome = run_dir::OutcomeOfExit(end.exit_code, end.signal);
  const bool asked_signal = end.signal == SIGTERM || end.signal == SIGKILL;
  if (stopping && asked_signal) {
    exit.outcome = Outcome::kStopped;
    return exit;
  }
  const bool exited_well = end.signal == 0 && end.exit_code == run_dir::kExitSucceeded;
  const bool says_success = end.result.has_value() && end.result->outcome == Outcome::kSucceeded;
  if (end.result.has_value() && (exited_well || !says_success) &&
      !(exited_well && TY_BUG(believe_the_exit_code))) {
    // An exit code of 0 hides no failure that the result knows of.
    exit.outcome = end.result->outcome;
    exit.reason = end.result->reason;
    exit.message = end.result->message;
  } else if (!exited_well && exit.outcome != Outcome::kStopped) {
    ExplainBadEnd(end, exit);
  }
  return exit;
}

SupervisorCore::SupervisorCore(std::vector<int> ranks) : ranks_(std::move(ranks)) {
  TY_CHECK(!ranks_.empty());
}

void SupervisorCore::RankEnded(absl::Duration now, const RankEnd& end) {
  TY_CHECK(std::find(ranks_.begin(), ranks_.end(), end.rank) != ranks_.end());
  TY_CHECK(std::none_of(exits_.begin(), exits_.end(),
                        [&end](const Ended& ended) { return ended.exit.rank == end.rank; }));
  Ended ended{JudgeRank(end, stopping()), false};
  const bool bad = ended.exit.outcome != Outcome::kSucceeded;
  ended.by_itself = bad && !stopping();
  exits_.push_back(std::move(ended));
  if (phase_ == Phase::kRunning && bad) {
    phase_ = Phase::kFailing;
    deadline_ = now + kPeerGrace;
  }
}

void SupervisorCore::StopAsked(absl::Duration now, const run_dir::StopRequest& request) {
  if (phase_ == Phase::kGone) return;
  if (!stop_.has_value()) stop_ = request;
  switch (phase_) {
    case Phase::kRunning:
    case Phase::kFailing:
      Terminate(now, request.grace);
      break;
    case Phase::kTerminating:
      deadline_ = std::min(deadline_, now + request.grace);
      break;
    case Phase::kKilling:
    case Phase::kGone:
      break;
  }
}

void SupervisorCore::GroupGone() {
  TY_CHECK(all_ranks_ended());
  phase_ = Phase::kGone;
  deadline_ = absl::InfiniteDuration();
  term_due_ = false;
}

void SupervisorCore::Terminate(absl::Duration now, absl::Duration grace) {
  phase_ = Phase::kTerminating;
  deadline_ = now + grace;
  term_due_ = true;
}

SignalToSend SupervisorCore::Tick(absl::Duration now) {
  if (phase_ == Phase::kRunning || phase_ == Phase::kFailing) {
    if (all_ranks_ended()) {
      Terminate(now, kStrayGrace);
    } else if (lease_.ExpiredAt(now) && !TY_BUG(ignore_the_lease)) {
      StopAsked(now, {kReasonLeaseExpired, kDefaultTermGrace});
    } else if (phase_ == Phase::kFailing && now >= deadline_) {
      Terminate(now, kDefaultTermGrace);
    }
  }
  if (stopping() && now >= Deadline() && !TY_BUG(never_kill)) {
    phase_ = Phase::kKilling;
    deadline_ = now + kKillInterval;
    term_due_ = false;
    return SignalToSend::kKill;
  }
  if (std::exchange(term_due_, false)) return SignalToSend::kTerm;
  return SignalToSend::kNone;
}

// A stop may have been asked for with a long grace, just before the server was lost.
absl::Duration SupervisorCore::Deadline() const {
  if (phase_ != Phase::kTerminating || lease_.unlimited()) return deadline_;
  return std::min(deadline_, lease_.expire_uptime + kDefaultTermGrace);
}

absl::Duration SupervisorCore::NextDeadline() const {
  absl::Duration next = Deadline();
  if ((phase_ == Phase::kRunning || phase_ == Phase::kFailing) && !lease_.unlimited()) {
    next = std::min(next, lease_.expire_uptime);
  }
  return next;
}

std::vector<run_dir::RankExit> SupervisorCore::RankExits() const {
  std::vector<run_dir::RankExit> exits;
  for (const Ended& ended : exits_) exits.push_back(ended.exit);
  std::sort(exits.begin(), exits.end(),
            [](const run_dir::RankExit& a, const run_dir::RankExit& b) { return a.rank < b.rank; });
  return exits;
}

const SupervisorCore::Ended* SupervisorCore::FirstFailure() const {
  const Ended* first = nullptr;
  for (const Ended& ended : exits_) {
    if (!ended.by_itself) continue;
    if (ended.exit.reason != kReasonPeerLost) return &ended;
    // The peers of a failed rank may well be reaped before it.
    if (first == nullptr) first = &ended;
  }
  return first;
}

run_dir::AttemptExit SupervisorCore::Exit(int64_t end_time_us) const {
  run_dir::AttemptExit exit;
  exit.ranks = RankExits();
  exit.end_time_us = end_time_us;
  const bool all_succeeded =
      all_ranks_ended() && std::all_of(exits_.begin(), exits_.end(), [](const Ended& ended) {
        return ended.exit.outcome == Outcome::kSucceeded;
      });
  if (all_succeeded) {
    exit.outcome = Outcome::kSucceeded;
  } else if (const Ended* failure = FirstFailure()) {
    exit.exit_code = failure->exit.exit_code;
    exit.signal = failure->exit.signal;
    exit.outcome = failure->exit.outcome;
    exit.reason = failure->exit.reason;
    exit.message = failure->exit.message;
    exit.failed_rank = failure->exit.rank;
    if (exit.outcome == Outcome::kStopped) {
      // Nobody asked us: somebody sent SIGTERM to the rank itself. The attempt is worth a retry.
      exit.outcome = Outcome::kTransient;
      exit.reason = "STOPPED_UNASKED";
      exit.message = absl::StrCat("rank ", failure->exit.rank,
                                  " stopped by itself; somebody sent it a signal");
    }
  } else if (stop_.has_value() && stop_->reason == run_dir::kStopDeviceLost) {
    // Ranks that hang on a lost device do not say so themselves.
    exit.outcome = Outcome::kHardware;
    exit.exit_code = run_dir::kExitHardware;
    exit.reason = run_dir::kReasonDeviceLost;
    exit.message = stop_->message;
    exit.failed_rank = stop_->rank;
  } else {
    exit.outcome = Outcome::kStopped;
    exit.exit_code = run_dir::kExitStopped;
    if (stop_.has_value()) exit.reason = stop_->reason;
  }
  return exit;
}

}  // namespace trainyard::supervisor
