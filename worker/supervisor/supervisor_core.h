// The decisions of the supervisor: when the ranks of an attempt are told to go, when they are
// killed, and how the attempt ended. Pure: it is told what happened and when, and says which signal
// to send; it owns no process and no file, so that tests and the simulator replay it.
//
//   Running --(1)--> Failing --(2)--> Terminating --(4)--> Killing
//      |                |                ^   |                |
//      +----------------+-----(3)--------+   +------(5)-------+---> Gone
//
//   1 a rank ended badly: the others get a grace to notice by themselves
//   2 that grace is over: SIGTERM
//   3 a stop was asked for, the lease ran out, a rank is stuck, or all ranks ended and left
//     processes behind: SIGTERM
//   4 the grace after SIGTERM is over: SIGKILL, again and again until nothing is left
//   5 no process of the attempt is left; from every state
//
// A rank promises in its progress when it will say something again. One that lets its promise pass
// is stuck, by a clock that nobody can set; time in which this process itself was not run, since
// the machine was suspended or had too much to do, does not count. Ranks that do not answer are
// suspects: what they do is looked at before they are killed, and told with the failure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "worker/run_dir/control.h"
#include "worker/run_dir/records.h"

namespace trainyard::supervisor {

// For the peers of a failed rank to notice, to report a reason of their own and to end.
inline constexpr absl::Duration kPeerGrace = absl::Milliseconds(1500);
// Between SIGTERM and SIGKILL after a failure: a gang that lacks a rank cannot finish its step, so
// there is nothing to wait for. With the grace above it is less than 5 s to the end of the peers.
inline constexpr absl::Duration kFailureTermGrace = absl::Milliseconds(2500);
// Between SIGTERM and SIGKILL where nobody asked for a stop, at the lease's end.
// No rank lives for longer after the lease: the server relies on it (core::Config::lease_grace_us).
inline constexpr absl::Duration kDefaultTermGrace = absl::Seconds(10);
// For processes that outlive all ranks.
inline constexpr absl::Duration kStrayGrace = absl::Seconds(2);
// SIGKILL is repeated: a process may have forked while the list was made.
inline constexpr absl::Duration kKillInterval = absl::Seconds(1);
// A rank may be behind its promise for this long, since what it writes must be seen here first.
inline constexpr absl::Duration kPromiseMargin = absl::Seconds(2);
// While ranks have made promises, Tick is called so often; where it comes much later, this process
// was not run.
inline constexpr absl::Duration kTickInterval = absl::Seconds(1);
inline constexpr absl::Duration kTickLate = absl::Seconds(2);
// Where a whole gang hangs, a few stacks tell enough.
inline constexpr size_t kSuspectsMax = 4;

// Reasons of stops that the supervisor gives by itself.
inline constexpr char kReasonLeaseExpired[] = "lease_expired";
inline constexpr char kReasonDrained[] = "drained";  // somebody sent SIGTERM to the supervisor

// As which an attempt has failed that a rank held up: it let its own promise pass, or others waited
// for it in vain.
inline constexpr char kReasonRankStuck[] = "RANK_STUCK";

// The end of a rank's process, with what the rank said about it.
struct RankEnd {
  int rank = 0;
  int exit_code = 0;
  int signal = 0;  // 0: it exited by itself
  std::optional<run_dir::RankResult> result;
  int64_t end_time_us = 0;
};

// The rank's exit record: its own result where that agrees with how the process ended, else what
// the exit code or the signal says. A rank whose process ended badly never counts as succeeded.
// `stopping`: the group had been told to go before.
run_dir::RankExit JudgeRank(const RankEnd& end, bool stopping);

enum class SignalToSend { kNone, kTerm, kKill };

// Times are Clock::Uptime. Not thread-safe.
class SupervisorCore {
 public:
  // `ranks` of this host, ascending, at least one.
  explicit SupervisorCore(std::vector<int> ranks);

  // The inputs:
  void RankEnded(absl::Duration now, const RankEnd& end);
  // A later request may shorten the grace; it never lengthens it.
  void StopAsked(absl::Duration now, const run_dir::StopRequest& request);
  void LeaseSeen(const run_dir::Lease& lease) { lease_ = lease; }
  void ProgressSeen(absl::Duration now, int rank, const run_dir::Progress& progress);
  // No process of the attempt is left. Every rank has been reported by RankEnded before.
  void GroupGone();

  // The signal that all processes of the attempt get now. Call it after the inputs above, and at
  // NextDeadline().
  SignalToSend Tick(absl::Duration now);
  // Ranks to look at before the signal of the last Tick is sent. Each is named once.
  std::vector<int> TakeSuspects();
  // Takes what was seen, as a clause: "is stopped by a signal (T), in poll < Receive".
  void SuspectSeen(int rank, std::string what);
  // InfiniteDuration where nothing is due.
  absl::Duration NextDeadline() const;

  bool stopping() const { return phase_ == Phase::kTerminating || phase_ == Phase::kKilling; }
  bool gone() const { return phase_ == Phase::kGone; }
  bool all_ranks_ended() const { return exits_.size() == ranks_.size(); }

  // In order of rank. Those of ranks that have ended.
  std::vector<run_dir::RankExit> RankExits() const;
  // The end of the attempt on this host; meaningful once gone().
  run_dir::AttemptExit Exit(int64_t end_time_us) const;

 private:
  enum class Phase { kRunning, kFailing, kTerminating, kKilling, kGone };
  struct Ended {
    run_dir::RankExit exit;
    bool by_itself = false;  // bad, and before anybody was told to go
    int stuck_rank = -1;     // for which it waited in vain
  };
  // The last words of a rank.
  struct Promise {
    int64_t silent_until_us = 0;  // as it stands in the file
    absl::Duration silent_until;  // with the time that does not count
    absl::Duration seen;          // when it was new here
    int64_t step = 0;
    run_dir::Progress::State state = run_dir::Progress::State::kStarting;
  };
  struct Stuck {
    int rank = 0;
    std::string why;
  };

  void Terminate(absl::Duration now, absl::Duration grace);
  absl::Duration Deadline() const;
  void ForgiveLateTick(absl::Duration now);
  bool IsBehind(int rank, absl::Duration now) const;
  // The rank that is furthest behind, of those that have let their promises pass.
  void FindStuckRank(absl::Duration now);
  void SuspectLivingRanks();
  void SuspectSilentRanks(absl::Duration now);
  void Suspect(int rank);
  const Ended* FindEnded(int rank) const;
  const Ended* FirstFailure() const;
  std::optional<Stuck> StuckRank() const;
  // For the end of a sentence; empty where nothing was seen.
  std::string Sight(int rank) const;

  const std::vector<int> ranks_;
  Phase phase_ = Phase::kRunning;
  absl::Duration deadline_ = absl::InfiniteDuration();  // of the phase, by itself
  bool term_due_ = false;
  run_dir::Lease lease_;  // unlimited until seen
  std::optional<run_dir::StopRequest> stop_;
  absl::Duration last_tick_ = absl::InfiniteDuration();
  std::map<int, Promise> promises_;  // by rank
  std::optional<Stuck> stuck_;       // behind its promise
  std::vector<int> suspects_;        // to be taken
  std::set<int> suspected_;          // ever
  std::map<int, std::string> sights_;
  std::vector<Ended> exits_;  // in the order in which they ended
};

}  // namespace trainyard::supervisor
