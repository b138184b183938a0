// Implements a turn of the server, without a thread, a clock or a disk. A turn applies what has
// come to the yard, commits once, and only then answers. The caller does these steps in order:
//
//   turn = Take(items, now)         the yard decides
//   commit turn->delta              the caller's part, where there is anything to commit
//   Committed(), or OutOfSpace(), or Broken()
//   call the answers                in their order
//
// The server's one writer (runtime.h) drives it with a thread and a store, the simulator with
// virtual time, a disk that fails, and a process that dies between any two of these steps.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/scheduling/policy.h"
#include "server/core/yard/deadlines.h"
#include "server/core/yard/yard.h"

namespace trainyard::runtime {

// The attempts that a worker should have, as of a revision within its session.
struct DesiredState {
  std::string worker;
  int64_t revision = 0;
  std::vector<core::DesiredAttempt> attempts;
};

// Each of these is called exactly once. They must be quick and never block.
using PostDone = std::function<void(absl::StatusOr<core::Reply>)>;
using SyncDone = std::function<void(absl::StatusOr<DesiredState>)>;
using ReadDone = std::function<void(absl::StatusOr<const core::Yard*>)>;

// An input, which is answered when its effect is durable, or when it is refused.
struct PostItem {
  core::Input input;
  PostDone done;
};
// A worker's report. It is answered at once if the desired revision differs from the worker's, or
// if the worker's is 0. Otherwise it is answered when the revision changes, when `max_wait` is
// over, or when the worker calls again.
struct SyncItem {
  core::SyncReport report;
  absl::Duration max_wait;
  SyncDone done;
};
// A request to read the yard while all of its state is committed.
struct ReadItem {
  ReadDone done;
};
// Answers the worker that waits, or the next time that it calls: there is something for it besides
// its orders. Nobody is told when that is done.
struct WakeItem {
  std::string worker;
};
using TurnItem = std::variant<PostItem, SyncItem, ReadItem, WakeItem>;

// The loop. The class is not thread-safe.
class TurnLoop {
 public:
  // An answer that is ready to be given.
  using Answer = std::function<void()>;

  // Makes the policy of a yard, of which there is another one after a commit without space.
  using PolicyMaker = std::function<std::unique_ptr<const core::Policy>()>;

  // After a commit for which there was no space, timers rest for `rest_after_full_disk`.
  TurnLoop(
      core::Config config, absl::Duration rest_after_full_disk, core::Snapshot stored,
      core::Now now, PolicyMaker make_policy = [] { return core::MakePolicy(); });

  // Returns the yard. Between turns all of its state is committed.
  const core::Yard& yard() const { return yard_; }

  // Returns the uptime at which a turn is due even if no input comes.
  std::optional<int64_t> NextDeadline() const;

  // Begins a turn. Returns null if there is nothing to decide, and thus nothing to commit.
  // Otherwise the result is valid until the turn ends. One of the three calls below must end each
  // turn.
  const core::Turn* Take(std::vector<TurnItem> items, core::Now now);

  // Ends a turn whose delta is durable, or that had none.
  std::vector<Answer> Committed();
  // Ends a turn for which the disk had no space. Nothing of this turn is kept, and the yard goes
  // back to what is `stored`. Sessions are lost with the old yard, so workers register again.
  std::vector<Answer> OutOfSpace(const absl::Status& status, core::Snapshot stored);
  // Ends a turn after which the content of the disk is unknown. Nothing may be taken after it.
  std::vector<Answer> Broken(const absl::Status& status);

  // Ends the loop: workers that wait are answered with `status`.
  std::vector<Answer> EndWaiting(const absl::Status& status);

 private:
  // An input of this turn with what the yard said.
  struct AppliedPost {
    PostDone done;
    absl::StatusOr<core::Reply> reply;
  };
  struct AppliedSync {
    SyncItem item;
    absl::Status status;
  };
  // A worker that waits for new orders.
  struct Waiting {
    std::string session;
    SyncDone done;
  };

  // Appends the answers of a turn of which nothing is kept.
  void AnswerAll(const absl::Status& failed, std::vector<Answer>& answers);
  void AcceptSync(SyncItem item, std::vector<Answer>& answers);
  void AnswerWaiting(std::vector<Answer>& answers);
  void AnswerWaiting(const std::string& worker, std::vector<Answer>& answers);
  Answer AnswerSync(const std::string& worker, const std::string& session, SyncDone done) const;

  const core::Config config_;
  const int64_t rest_after_full_disk_us_;
  const PolicyMaker make_policy_;
  core::Yard yard_;
  std::map<std::string, Waiting> waiting_;  // by worker
  core::Deadlines<std::string> answer_by_;  // the deadline of each of them
  std::set<std::string> woken_;             // workers that are answered at once
  int64_t settle_after_us_ = 0;             // uptime; timers rest until then

  // The turn under way.
  core::Now now_;
  core::Turn turn_;
  std::vector<AppliedPost> posts_;
  std::vector<AppliedSync> syncs_;
  std::vector<ReadDone> reads_;
};

}  // namespace trainyard::runtime
