// Decides for each attempt separately, in the order of the table in the header.
#include "worker/agent/agent_core.h"

#include <algorithm>
#include <utility>

namespace trainyard::agent {
namespace {

using Kind = Action::Kind;

// A lease is written again when it has moved by this much. Each write is a rename, and a sync that
// is answered at once would otherwise cause one.
absl::Duration LeaseStep(absl::Duration left) {
  return std::clamp(left / 8, absl::ZeroDuration(), absl::Seconds(1));
}

// Decides for one attempt, and appends to `actions`.
class AttemptReconciler {
 public:
  AttemptReconciler(AttemptId id, const Desired* desired, const DesiredAttempt* wanted,
                    const LocalAttempt* local, absl::Duration now, std::vector<Action>& actions)
      : id_(id), desired_(desired), wanted_(wanted), local_(local), now_(now), actions_(actions) {}

  void Decide() {
    if (local_ != nullptr && local_->phase == Phase::kOrphaned) {
      // These actions are needed whatever the server wants, and whether or not it can be reached.
      Add(Kind::kRecordDeath);
      return;
    }
    if (local_ != nullptr) Prune();
    if (desired_ == nullptr) return;
    if (wanted_ != nullptr && local_ != nullptr && wanted_->fencing_token < local_->fencing_token) {
      return;  // the order is older than what runs here
    }
    const bool same =
        wanted_ != nullptr && (local_ == nullptr || local_->phase == Phase::kIncomplete ||
                               wanted_->fencing_token == local_->fencing_token);
    if (!same) {
      // The attempt is not listed, or superseded by a newer token, so it must be removed. The new
      // attempt begins afterwards.
      Remove();
      return;
    }
    switch (wanted_->action) {
      case DesiredAttempt::Action::kRun:
        Run();
        break;
      case DesiredAttempt::Action::kStop:
        Stop(wanted_->stop);
        break;
      case DesiredAttempt::Action::kRemove:
        Remove();
        break;
    }
  }

 private:
  Action& Add(Kind kind) {
    Action& action = actions_.emplace_back();
    action.kind = kind;
    action.attempt = id_;
    return action;
  }

  void Run() {
    if (local_ == nullptr || local_->phase == Phase::kIncomplete) {
      // After the lease's end the devices may belong to another job.
      if (now_ < desired_->lease_expire_uptime) Add(Kind::kBegin);
      return;
    }
    switch (local_->phase) {
      case Phase::kPrepared:
        RenewLease();
        AskCheckpoint();
        if (now_ < desired_->lease_expire_uptime) Add(Kind::kLaunch);
        break;
      case Phase::kLaunching:
      case Phase::kAlive:
        RenewLease();
        Publish();
        AskCheckpoint();
        break;
      case Phase::kPreparing:
      case Phase::kIncomplete:
      case Phase::kOrphaned:
      case Phase::kExited:
        break;
    }
  }

  void RenewLease() {
    const absl::Duration expire = LeaseOf(*desired_, *wanted_);
    const absl::Duration behind = expire - local_->lease_expire;
    // A lease that is ahead was written before a power loss. Times of another boot mean nothing.
    const bool is_of_another_boot = behind < absl::ZeroDuration();
    if (behind <= LeaseStep(expire - now_) && !is_of_another_boot) return;
    Add(Kind::kRenewLease).lease_expire = expire;
  }

  // These are values that the ranks wait for.
  void Publish() {
    for (const auto& [key, value] : wanted_->rendezvous) {
      if (!local_->rendezvous.contains(key)) Add(Kind::kPublish).key = key;
    }
  }

  // Ranks answer the largest number that they have seen, which answers older requests too.
  void AskCheckpoint() {
    if (wanted_->checkpoint_request <= local_->checkpoint_request) return;
    Add(Kind::kAskCheckpoint).number = wanted_->checkpoint_request;
  }

  void Stop(const run_dir::StopRequest& request) {
    if (local_ == nullptr) return;
    switch (local_->phase) {
      case Phase::kPreparing:
      case Phase::kIncomplete:
        Add(Kind::kAbandon).stop = request;
        break;
      case Phase::kPrepared:
        WriteStop(request);
        Add(Kind::kLaunch);
        break;
      case Phase::kLaunching:
      case Phase::kAlive:
        // If an attempt has time to write its checkpoint, it keeps its devices for that time.
        if (wanted_ != nullptr) RenewLease();
        WriteStop(request);
        break;
      case Phase::kOrphaned:
      case Phase::kExited:
        break;
    }
  }

  void WriteStop(const run_dir::StopRequest& request) {
    // A shorter grace must be passed on. A longer one need not, because the supervisor would ignore
    // it.
    if (local_->stop.has_value() && local_->stop->grace <= request.grace) return;
    Add(Kind::kStop).stop = request;
  }

  void Remove() {
    if (local_ == nullptr) return;
    if (local_->phase != Phase::kExited) {
      Stop({kUnlistedReason, kUnlistedGrace});
    } else if (local_->drained) {
      Add(Kind::kRemove);
    }
  }

  void Prune() {
    const std::vector<int64_t>& steps = local_->checkpoints;
    if (local_->phase == Phase::kExited) return;  // it is removed as a whole
    for (size_t i = 0; i + kKeptCheckpoints < steps.size(); ++i) {
      if (local_->committed.contains(steps[i])) Add(Kind::kPruneCheckpoint).number = steps[i];
    }
  }

  const AttemptId id_;
  const Desired* const desired_;
  const DesiredAttempt* const wanted_;
  const LocalAttempt* const local_;
  const absl::Duration now_;
  std::vector<Action>& actions_;
};

}  // namespace

absl::Duration LeaseOf(const Desired& desired, const DesiredAttempt& attempt) {
  return desired.lease_expire_uptime + attempt.keep;
}

std::vector<Action> Reconcile(const std::optional<Desired>& desired,
                              const std::map<AttemptId, LocalAttempt>& local, absl::Duration now) {
  std::set<AttemptId> ids;
  for (const auto& [id, attempt] : local) ids.insert(id);
  if (desired.has_value()) {
    for (const auto& [id, attempt] : desired->attempts) ids.insert(id);
  }
  std::vector<Action> actions;
  for (const AttemptId& id : ids) {
    const DesiredAttempt* wanted = nullptr;
    const LocalAttempt* here = nullptr;
    if (desired.has_value()) {
      const auto found = desired->attempts.find(id);
      if (found != desired->attempts.end()) wanted = &found->second;
    }
    if (const auto found = local.find(id); found != local.end()) here = &found->second;
    AttemptReconciler(id, desired.has_value() ? &*desired : nullptr, wanted, here, now, actions)
        .Decide();
  }
  return actions;
}

}  // namespace trainyard::agent
