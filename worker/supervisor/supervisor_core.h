// Makes the decisions of the supervisor: when the ranks of an attempt are told to end, when they
// are killed, and how the attempt ended. It is pure: it is told what happened and when, and says
// which signal to send. It owns no process and no file, so that tests and the simulator can replay
// it.
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
// A rank promises in its progress when it will report again. If it breaks its promise, it counts as
// stuck. The clock for that cannot be set by anybody, and time in which this process itself did not
// run, because the machine was suspended or overloaded, does not count. Ranks that do not answer
// are suspects: the supervisor looks at what they do before they are killed, and reports it with
// the failure.
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

// The time in which the peers of a failed rank should notice, report a reason of their own and end.
inline constexpr absl::Duration kPeerGrace = absl::Milliseconds(1500);
// The time between SIGTERM and SIGKILL after a failure. A gang that lacks a rank cannot finish its
// step, so there is nothing to wait for. Together with the grace above, the peers end within less
// than 5 s.
inline constexpr absl::Duration kFailureTermGrace = absl::Milliseconds(2500);
// The time between SIGTERM and SIGKILL if no stop was requested, at the lease's end. No rank lives
// for longer after the lease: the server relies on it (core::Config::lease_grace_us).
inline constexpr absl::Duration kDefaultTermGrace = absl::Seconds(10);
// The grace for processes that outlive all ranks.
inline constexpr absl::Duration kStrayGrace = absl::Seconds(2);
// SIGKILL is repeated: a process may have forked while the list was made.
inline constexpr absl::Duration kKillInterval = absl::Seconds(1);
// A rank may be late by this much, since what it writes must first be seen here.
inline constexpr absl::Duration kPromiseMargin = absl::Seconds(2);
// While ranks have made promises, Tick is called this often. If it is called much later, this
// process did not run.
inline constexpr absl::Duration kTickInterval = absl::Seconds(1);
inline constexpr absl::Duration kTickLate = absl::Seconds(2);
// If a whole gang hangs, a few stacks are enough.
inline constexpr size_t kSuspectsMax = 4;

// The reasons of stops that the supervisor decides by itself.
inline constexpr char kReasonLeaseExpired[] = "lease_expired";
inline constexpr char kReasonDrained[] = "drained";  // somebody sent SIGTERM to the supervisor

// The reason of an attempt that failed because a rank held it up: the rank broke its promise, or
// others waited for it in vain.
inline constexpr char kReasonRankStuck[] = "RANK_STUCK";

// The end of a rank's process, with the rank's own account of it.
struct RankEnd {
  int rank = 0;
  int exit_code = 0;
  int signal = 0;  // 0 if it exited by itself
  std::optional<run_dir::RankResult> result;
  // A text with what the rank had used when the system killed it for want of memory; empty if it
  // did not.
  std::string out_of_memory = {};
  int64_t end_time_us = 0;
};

// Returns the rank's exit record: its own result if that agrees with how the process ended, else
// what the exit code or the signal says. A rank whose process ended badly never counts as
// succeeded. `stopping` means that the group had been told to end before.
run_dir::RankExit JudgeRank(const RankEnd& end, bool stopping);

enum class SignalToSend { kNone, kTerm, kKill };

// The core. Times are Clock::Uptime. The class is not thread-safe.
class SupervisorCore {
 public:
  // `ranks` are those of this host, ascending, at least one.
  explicit SupervisorCore(std::vector<int> ranks);

  // These are the inputs.
  void RankEnded(absl::Duration now, const RankEnd& end);
  // Takes a request. A later one may shorten the grace, but never lengthens it.
  void StopAsked(absl::Duration now, const run_dir::StopRequest& request);
  void LeaseSeen(const run_dir::Lease& lease) { lease_ = lease; }
  void ProgressSeen(absl::Duration now, int rank, const run_dir::Progress& progress);
  // Notes that no process of the attempt is left. Every rank must have been reported by RankEnded
  // before.
  void GroupGone();

  // Returns the signal that all processes of the attempt get now. Call it after the inputs above,
  // and at NextDeadline().
  SignalToSend Tick(absl::Duration now);
  // Returns ranks to look at before the signal of the last Tick is sent. Each is named once.
  std::vector<int> TakeSuspects();
  // Takes what was seen, as a clause: "is stopped by a signal (T), in poll < Receive".
  void SuspectSeen(int rank, std::string what);
  // Returns InfiniteDuration if nothing is due.
  absl::Duration NextDeadline() const;

  bool stopping() const { return phase_ == Phase::kTerminating || phase_ == Phase::kKilling; }
  bool gone() const { return phase_ == Phase::kGone; }
  bool all_ranks_ended() const { return exits_.size() == ranks_.size(); }

  // Returns the exits of the ranks that have ended, in order of rank.
  std::vector<run_dir::RankExit> RankExits() const;
  // Returns the end of the attempt on this host. It is meaningful once gone().
  run_dir::AttemptExit Exit(int64_t end_time_us) const;

 private:
  enum class Phase { kRunning, kFailing, kTerminating, kKilling, kGone };
  struct Ended {
    run_dir::RankExit exit;
    bool by_itself = false;  // it failed, and not because it was told to end
    int stuck_rank = -1;     // the rank for which it waited in vain
  };
  // The last promise of a rank.
  struct Promise {
    int64_t silent_until_us = 0;  // as in the file
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
  // Finds the rank that is furthest behind among those that broke their promises.
  void FindStuckRank(absl::Duration now);
  void SuspectLivingRanks();
  void SuspectSilentRanks(absl::Duration now);
  void Suspect(int rank);
  const Ended* FindEnded(int rank) const;
  const Ended* FirstFailure() const;
  std::optional<Stuck> StuckRank() const;
  // Returns the end of a sentence, or an empty text if nothing was seen.
  std::string Sight(int rank) const;

  const std::vector<int> ranks_;
  Phase phase_ = Phase::kRunning;
  absl::Duration deadline_ = absl::InfiniteDuration();  // of the phase itself
  bool term_due_ = false;
  run_dir::Lease lease_;  // unlimited until seen
  std::optional<run_dir::StopRequest> stop_;
  absl::Duration last_tick_ = absl::InfiniteDuration();
  std::map<int, Promise> promises_;  // by rank
  std::optional<Stuck> stuck_;       // the rank that broke its promise
  std::vector<int> suspects_;        // to be taken
  std::set<int> suspected_;          // all that were ever suspected
  std::map<int, std::string> sights_;
  std::vector<Ended> exits_;  // in the order in which they ended
};

}  // namespace trainyard::supervisor
