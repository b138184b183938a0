// Judges how ranks ended, and decides which signals the remaining ranks get, and when.
#include "worker/supervisor/supervisor_core.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/duration.h"
#include "common/base/isolation.h"

namespace trainyard::supervisor {
namespace {

using run_dir::Outcome;

// A trainer reports these if it ended because another rank had. They are a consequence, never the
// cause.
constexpr char kReasonPeerLost[] = "PEER_LOST";
// This one says that it waited for another rank in vain. That other rank is the cause, if it is
// known.
constexpr char kReasonCollectiveTimeout[] = "COLLECTIVE_TIMEOUT";

// Rates a failure. The smaller the number, the nearer it is to the cause.
int DistanceFromCause(const std::string& reason) {
  if (reason == kReasonPeerLost) return 2;
  return reason == kReasonCollectiveTimeout ? 1 : 0;
}

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
                                " and left no result; its log says more");
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
  if (!end.out_of_memory.empty() && !exited_well) {
    // Whatever the rank says of its end is a consequence, and the same would happen again.
    exit.outcome = Outcome::kUserError;
    exit.reason = error::kOutOfMemory;
    exit.message = absl::StrCat("rank ", end.rank, " ran out of memory: it ", end.out_of_memory);
    return exit;
  }
  const bool says_success = end.result.has_value() && end.result->outcome == Outcome::kSucceeded;
  if (end.result.has_value() && (exited_well || !says_success)) {
    // An exit code of 0 does not hide a failure that the result records.
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
  // No stop makes a spec or its data wrong. The rank that refuses them may take longer to end than
  // the peers that lost it, here or on other hosts.
  ended.by_itself = bad && (!stopping() || ended.exit.outcome == Outcome::kUserError);
  if (end.result.has_value()) ended.stuck_rank = end.result->stuck_rank;
  promises_.erase(end.rank);
  if (ended.exit.outcome == Outcome::kStopped) {
    const std::optional<Stuck> stuck = StuckRank();
    if (stuck.has_value() && stuck->rank == end.rank) {
      ended.exit.outcome = Outcome::kTransient;
      ended.exit.reason = kReasonRankStuck;
      ended.exit.message = stuck->why;
    } else if (const auto sight = sights_.find(end.rank); sight != sights_.end()) {
      ended.exit.message = absl::StrCat("rank ", end.rank, " did not answer; it ", sight->second);
    }
  }
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
      SuspectSilentRanks(now);
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

void SupervisorCore::ProgressSeen(absl::Duration now, int rank, const run_dir::Progress& progress) {
  if (FindEnded(rank) != nullptr) return;
  Promise& promise = promises_[rank];
  promise.step = progress.step;
  promise.state = progress.state;
  if (promise.silent_until_us == progress.silent_until_boottime_us) return;
  promise.silent_until_us = progress.silent_until_boottime_us;
  promise.silent_until = absl::Microseconds(progress.silent_until_boottime_us);
  promise.seen = now;
}

void SupervisorCore::ForgiveLateTick(absl::Duration now) {
  const absl::Duration gap = now - std::exchange(last_tick_, now);
  if (gap < kTickInterval + kTickLate) return;
  for (auto& [rank, promise] : promises_) promise.silent_until += gap;
}

bool SupervisorCore::IsBehind(int rank, absl::Duration now) const {
  const auto promise = promises_.find(rank);
  return promise != promises_.end() && promise->second.silent_until_us > 0 &&
         now >= promise->second.silent_until + kPromiseMargin;
}

void SupervisorCore::FindStuckRank(absl::Duration now) {
  const auto is_nearer = [this](int a, int b) {
    const Promise& left = promises_.at(a);
    const Promise& right = promises_.at(b);
    return std::tie(left.step, left.silent_until, a) < std::tie(right.step, right.silent_until, b);
  };
  std::vector<int> behind;
  for (const int rank : ranks_) {
    if (IsBehind(rank, now)) behind.push_back(rank);
  }
  if (behind.empty()) return;
  std::sort(behind.begin(), behind.end(), is_nearer);
  const int rank = behind.front();
  const Promise& promise = promises_.at(rank);
  stuck_ = {rank,
            absl::StrCat("rank ", rank, " is stuck after step ", promise.step, " (",
                         run_dir::ProgressStateName(promise.state), "): no sign of life ",
                         DurationText(absl::Trunc(now - promise.silent_until, absl::Seconds(1))),
                         " after the time that it had promised")};
  for (const int one : behind) Suspect(one);
  Terminate(now, kFailureTermGrace);
}

void SupervisorCore::Suspect(int rank) {
  if (suspected_.size() >= kSuspectsMax || !suspected_.insert(rank).second) return;
  suspects_.push_back(rank);
}

void SupervisorCore::SuspectLivingRanks() {
  for (const int rank : ranks_) {
    if (FindEnded(rank) == nullptr) Suspect(rank);
  }
}

// If the gang has failed on another host, a rank of this host may have held it up. This is the last
// chance to find out what it did.
void SupervisorCore::SuspectSilentRanks(absl::Duration now) {
  if (lease_.ExpiredAt(now)) return;
  for (const auto& [rank, promise] : promises_) {
    if (promise.silent_until_us > 0 &&
        now - promise.seen > (promise.silent_until - promise.seen) / 2) {
      Suspect(rank);
    }
  }
}

std::vector<int> SupervisorCore::TakeSuspects() {
  return std::exchange(suspects_, {});
}

void SupervisorCore::SuspectSeen(int rank, std::string what) {
  sights_[rank] = std::move(what);
}

SignalToSend SupervisorCore::Tick(absl::Duration now) {
  ForgiveLateTick(now);
  if (phase_ == Phase::kRunning || phase_ == Phase::kFailing) {
    if (all_ranks_ended()) {
      Terminate(now, kStrayGrace);
    } else if (lease_.ExpiredAt(now)) {
      StopAsked(now, {kReasonLeaseExpired, kDefaultTermGrace});
    } else if (phase_ == Phase::kFailing && now >= deadline_) {
      SuspectLivingRanks();
      Terminate(now, kFailureTermGrace);
    } else if (phase_ == Phase::kRunning) {
      FindStuckRank(now);
    }
  }
  if (stopping() && now >= Deadline()) {
    // The server relies on the end of ranks without a lease, so nothing may delay it.
    if (phase_ == Phase::kTerminating && !lease_.ExpiredAt(now)) SuspectLivingRanks();
    phase_ = Phase::kKilling;
    deadline_ = now + kKillInterval;
    term_due_ = false;
    return SignalToSend::kKill;
  }
  if (std::exchange(term_due_, false)) return SignalToSend::kTerm;
  return SignalToSend::kNone;
}

// A stop may have been requested with a long grace, just before the server was lost.
absl::Duration SupervisorCore::Deadline() const {
  if (phase_ != Phase::kTerminating || lease_.unlimited()) return deadline_;
  return std::min(deadline_, lease_.expire_uptime + kDefaultTermGrace);
}

absl::Duration SupervisorCore::NextDeadline() const {
  absl::Duration next = Deadline();
  if ((phase_ == Phase::kRunning || phase_ == Phase::kFailing) && !lease_.unlimited()) {
    next = std::min(next, lease_.expire_uptime);
  }
  if (phase_ == Phase::kRunning) {
    for (const auto& [rank, promise] : promises_) {
      if (promise.silent_until_us == 0) continue;
      next = std::min(next, promise.silent_until + kPromiseMargin);
    }
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

const SupervisorCore::Ended* SupervisorCore::FindEnded(int rank) const {
  const auto found = std::find_if(exits_.begin(), exits_.end(),
                                  [rank](const Ended& ended) { return ended.exit.rank == rank; });
  return found == exits_.end() ? nullptr : &*found;
}

// The peers of a failed rank may well be reaped before it.
const SupervisorCore::Ended* SupervisorCore::FirstFailure() const {
  const Ended* first = nullptr;
  for (const Ended& ended : exits_) {
    if (!ended.by_itself) continue;
    if (first == nullptr ||
        DistanceFromCause(ended.exit.reason) < DistanceFromCause(first->exit.reason)) {
      first = &ended;
    }
  }
  return first;
}

std::string SupervisorCore::Sight(int rank) const {
  const auto sight = sights_.find(rank);
  return sight == sights_.end() ? "" : absl::StrCat("; it ", sight->second);
}

std::optional<SupervisorCore::Stuck> SupervisorCore::StuckRank() const {
  if (stuck_.has_value()) return Stuck{stuck_->rank, stuck_->why + Sight(stuck_->rank)};
  const Ended* failure = FirstFailure();
  if (failure == nullptr || failure->exit.reason != kReasonCollectiveTimeout) return std::nullopt;
  int rank = failure->stuck_rank;
  // A rank that waited in vain for one that itself waited in vain blames the wrong one.
  std::set<int> seen = {failure->exit.rank};
  for (const Ended* ended = FindEnded(rank);
       ended != nullptr && ended->by_itself && ended->stuck_rank >= 0 && seen.insert(rank).second;
       ended = FindEnded(rank)) {
    rank = ended->stuck_rank;
  }
  // If the transport cannot tell, the stuck rank is the one that has noticed nothing.
  if (rank < 0 && !sights_.empty()) rank = sights_.begin()->first;
  if (rank < 0) return std::nullopt;
  return Stuck{rank,
               absl::StrCat("rank ", rank, " is stuck: ", failure->exit.message, Sight(rank))};
}

run_dir::AttemptExit SupervisorCore::Exit(int64_t end_time_us) const {
  run_dir::AttemptExit exit;
  exit.ranks = RankExits();
  exit.end_time_us = end_time_us;
  const bool all_succeeded =
      all_ranks_ended() && std::all_of(exits_.begin(), exits_.end(), [](const Ended& ended) {
        return ended.exit.outcome == Outcome::kSucceeded;
      });
  const std::optional<Stuck> stuck = StuckRank();
  if (all_succeeded) {
    exit.outcome = Outcome::kSucceeded;
  } else if (stuck.has_value()) {
    exit.outcome = Outcome::kTransient;
    exit.exit_code = run_dir::kExitTransient;
    exit.reason = kReasonRankStuck;
    exit.message = stuck->why;
    exit.failed_rank = stuck->rank;
  } else if (const Ended* failure = FirstFailure()) {
    exit.exit_code = failure->exit.exit_code;
    exit.signal = failure->exit.signal;
    exit.outcome = failure->exit.outcome;
    exit.reason = failure->exit.reason;
    exit.message = failure->exit.message;
    exit.failed_rank = failure->exit.rank;
    if (exit.outcome == Outcome::kStopped) {
      // No stop was requested: somebody sent SIGTERM to the rank itself. The attempt is worth a
      // retry.
      exit.outcome = Outcome::kTransient;
      exit.reason = "STOPPED_UNASKED";
      exit.message = absl::StrCat("rank ", failure->exit.rank,
                                  " stopped by itself; somebody sent it a signal");
    }
  } else if (stop_.has_value() && stop_->reason == run_dir::kStopDeviceLost) {
    // Ranks that hang on a lost device do not report it themselves.
    exit.outcome = Outcome::kHardware;
    exit.exit_code = run_dir::kExitHardware;
    exit.reason = run_dir::kReasonDeviceLost;
    exit.message = stop_->message;
    exit.failed_rank = stop_->rank;
  } else {
    exit.outcome = Outcome::kStopped;
    exit.exit_code = run_dir::kExitStopped;
    if (stop_.has_value()) exit.reason = stop_->reason;
    // Its steps since the last checkpoint are lost, so its user is told that the stop was an
    // unusual one.
    const auto killed = std::find_if(exits_.begin(), exits_.end(), [](const Ended& ended) {
      return ended.exit.signal == SIGKILL && !ended.exit.message.empty();
    });
    if (killed != exits_.end()) {
      exit.message = absl::StrCat(killed->exit.message, ", and was killed when its grace was over");
    }
  }
  return exit;
}

}  // namespace trainyard::supervisor
