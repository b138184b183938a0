// Runs thousands of random histories: whatever happens in whatever order, the promises hold. One
// seed gives one history; a failure names its seed.
#include <map>
#include <random>
#include <set>

#include "common/base/errors.h"
#include "yard_fixture.h"

namespace trainyard::core {
namespace {

// A worker that does what the server wants, late and forgetfully. It knows its devices, so it
// notices when two attempts are run on one.
struct FakeWorker {
  struct Attempt {
    int64_t token = 0;
    ObservedState state = ObservedState::kStarting;
    OutcomeKind outcome = OutcomeKind::kNone;
    Failure failure;
    std::vector<std::string> devices;
    bool drained = false;
  };

  std::string name;
  std::string session;
  int64_t sequence = 0;
  int64_t seen_revision = 0;
  std::vector<DesiredAttempt> orders;  // as of seen_revision
  std::map<AttemptId, Attempt> attempts;
};

class History {
 public:
  explicit History(uint64_t seed) : random_(seed), now_{1'790'000'000 * kSecond, 7 * kSecond} {
    config_.gone_after_us = 2 * kMinute;
    config_.min_runtime_us = 10 * kSecond;
    yard_ = std::make_unique<Yard>(config_, Snapshot{}, now_);
    for (int i = 0; i < 3; ++i) {
      workers_.emplace_back();
      workers_.back().name = absl::StrCat("lab-", i);
    }
  }

  void Run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      Act();
      Settle();
      Check();
    }
  }

  // Faults stop: every worker syncs and obeys until nothing changes any more.
  void Calm() {
    calm_ = true;
    for (int i = 0; i < 400 && !::testing::Test::HasFailure(); ++i) {
      now_.uptime_us += 2 * kSecond;
      now_.wall_us += 2 * kSecond;
      for (FakeWorker& worker : workers_) {
        if (worker.session.empty() || !yard_->WorkerOfSession(worker.session).ok()) {
          Register(worker);
        }
        Obey(worker);
        Progress(worker, /*calm=*/true);
        Sync(worker);
        TakeBack(worker);
        Settle();
        Check();
      }
    }
    for (const auto& [id, job] : yard_->snapshot().jobs) {
      if (std::holds_alternative<job_fsm::Suspended>(job.state)) continue;
      EXPECT_TRUE(job_fsm::IsFinal(job.state))
          << JobName(id) << " is " << job_fsm::Name(job.state) << " when all is calm";
    }
  }

 private:
  uint64_t Below(uint64_t n) { return random_() % n; }
  bool Chance(uint64_t percent) { return Below(100) < percent; }
  FakeWorker& AnyWorker() { return workers_[Below(workers_.size())]; }
  JobId AnyJob() { return JobId{static_cast<int64_t>(Below(10) + 1)}; }

  void Act() {
    const uint64_t dice = Below(100);
    if (dice < 8) {
      Submit();
    } else if (dice < 11) {
      (void)yard_->Apply(CancelJob{AnyJob(), "user:x", ""}, now_);
    } else if (dice < 14) {
      (void)yard_->Apply(SuspendJob{AnyJob(), "user:x", ""}, now_);
    } else if (dice < 18) {
      (void)yard_->Apply(ResumeJob{AnyJob(), "user:x"}, now_);
    } else if (dice < 21) {
      Register(AnyWorker());
    } else if (dice < 45) {
      Sync(AnyWorker());
    } else if (dice < 60) {
      Obey(AnyWorker());
    } else if (dice < 78) {
      Progress(AnyWorker(), /*calm=*/false);
    } else if (dice < 80) {
      Cordon(AnyWorker());
    } else if (dice < 84) {
      Commit(AnyWorker());
    } else if (dice < 85) {
      // The disk was wiped, so the processes are gone, too.
      AnyWorker().attempts.clear();
    } else if (dice < 87) {
      Restart();
    } else {
      const int64_t us = Chance(10) ? 5 * kMinute : static_cast<int64_t>(Below(8)) * kSecond;
      now_.uptime_us += us;
      now_.wall_us += us;
      if (Chance(5)) now_.wall_us += Chance(50) ? 3600 * kSecond : -3600 * kSecond;
      ExpireLeases();
    }
  }

  // An operator takes back what failures have set aside.
  void TakeBack(const FakeWorker& worker) {
    const WorkerRecord* record = yard_->FindWorker(worker.name);
    if (record == nullptr) return;
    if (record->scheduling != Scheduling::kEligible) {
      ASSERT_TRUE(yard_->Apply(UncordonWorker{worker.name, "user:op"}, now_).ok());
    }
    for (const DeviceRecord& device : record->devices) {
      if (device.quarantine.empty()) continue;
      ASSERT_TRUE(yard_->Apply(ReleaseDevice{worker.name, device.name, "user:op"}, now_).ok());
      break;  // the record has changed
    }
  }

  void Submit() {
    Submission submission;
    submission.demand = {static_cast<int32_t>(Below(4) + 1), "cpu", false};
    if (Chance(30)) submission.demand.min_count = 1;
    submission.priority = static_cast<int32_t>(Below(3));
    submission.max_retries = static_cast<int32_t>(Below(3));
    submission.disconnect_keep_us = kKeep;
    submission.time_limit_us = Chance(20) ? 30 * kSecond : 0;
    submission.checkpoints_kept = 2;
    submission.keeps_best = Below(2) == 0;
    (void)yard_->Apply(SubmitJob{std::make_shared<Submission>(submission),
                                 Chance(50) ? absl::StrCat("r", Below(6)) : "", "h", "user:x"},
                       now_);
  }

  void Register(FakeWorker& worker) {
    RegisterWorker in;
    in.worker = worker.name;
    in.uid = worker.name;
    in.session = absl::StrCat("s", ++sessions_);
    for (int i = 0; i < 2; ++i) {
      DeviceRecord device;
      device.name = absl::StrCat("cpu-", i);
      device.type = "cpu";
      in.devices.push_back(device);
    }
    ASSERT_TRUE(yard_->Apply(in, now_).ok());
    worker.session = in.session;
    worker.sequence = 0;
    worker.seen_revision = 0;
    worker.orders.clear();
  }

  void Sync(FakeWorker& worker) {
    if (worker.session.empty()) return;
    SyncReport report;
    report.session = worker.session;
    report.sequence = ++worker.sequence;
    report.desired_revision = worker.seen_revision;
    for (const auto& [id, attempt] : worker.attempts) {
      ObservedAttempt seen;
      seen.attempt = id;
      seen.fencing_token = !calm_ && Chance(2) ? attempt.token + 7 : attempt.token;
      seen.state = attempt.state;
      seen.outcome.kind = attempt.outcome;
      seen.outcome.failure = attempt.failure;
      seen.drained = attempt.drained;
      report.attempts.push_back(seen);
    }
    const auto reply = yard_->Apply(report, now_);
    if (!reply.ok()) {
      EXPECT_EQ(ErrorReason(reply.status()), "UNKNOWN_SESSION");
      worker.session.clear();
      return;
    }
    if (Chance(20)) {  // sent twice
      ASSERT_TRUE(yard_->Apply(report, now_).ok());
    }
    last_sync_[worker.name] = now_.uptime_us;
  }

  // The worker reads its orders and carries them out at once, as the daemon does between two
  // reports.
  void Obey(FakeWorker& worker) {
    if (worker.session.empty() || !yard_->WorkerOfSession(worker.session).ok()) return;
    worker.seen_revision = yard_->DesiredRevision(worker.name);
    worker.orders = yard_->DesiredFor(worker.name);
    std::set<AttemptId> wanted;
    for (const DesiredAttempt& desired : worker.orders) {
      wanted.insert(desired.attempt);
      const auto found = worker.attempts.find(desired.attempt);
      switch (desired.action) {
        case DesiredAction::kRun:
          if (found == worker.attempts.end()) {
            FakeWorker::Attempt& attempt = worker.attempts[desired.attempt];
            attempt.token = desired.fencing_token;
            for (const RankPlacement& rank : desired.ranks) attempt.devices.push_back(rank.device);
          }
          break;
        case DesiredAction::kStop:
          if (found != worker.attempts.end() && found->second.state != ObservedState::kExited) {
            found->second.state = ObservedState::kStopping;
          }
          break;
        case DesiredAction::kRemove:
          if (found != worker.attempts.end() && found->second.drained) worker.attempts.erase(found);
          break;
      }
    }
    for (auto it = worker.attempts.begin(); it != worker.attempts.end();) {
      if (wanted.count(it->first) == 0 && it->second.state == ObservedState::kExited) {
        it = worker.attempts.erase(it);
      } else {
        if (wanted.count(it->first) == 0) it->second.state = ObservedState::kStopping;
        ++it;
      }
    }
  }

  void Progress(FakeWorker& worker, bool calm) {
    for (auto& [id, attempt] : worker.attempts) {
      if (attempt.state == ObservedState::kExited) {
        attempt.drained = attempt.drained || calm || Chance(60);
        continue;
      }
      if (attempt.state == ObservedState::kStarting) {
        attempt.state = ObservedState::kRunning;
        continue;
      }
      if (attempt.state == ObservedState::kStopping) {
        attempt.outcome = !calm && Chance(10) ? OutcomeKind::kSucceeded : OutcomeKind::kStopped;
        attempt.state = ObservedState::kExited;
        continue;
      }
      if (!calm && Chance(60)) continue;
      attempt.state = ObservedState::kExited;
      if (calm || Chance(50)) {
        attempt.outcome = OutcomeKind::kSucceeded;
      } else {
        attempt.outcome = OutcomeKind::kFailed;
        const FailureClass classes[] = {FailureClass::kUserError, FailureClass::kTransient,
                                        FailureClass::kHardware};
        attempt.failure = {classes[Below(3)], absl::StrCat("REASON_", Below(3)), "it broke"};
      }
    }
  }

  // Supervisors stop their ranks when their worker has had no news for `keep`.
  void ExpireLeases() {
    for (FakeWorker& worker : workers_) {
      if (now_.uptime_us - last_sync_[worker.name] < kKeep) continue;
      for (auto& [id, attempt] : worker.attempts) {
        if (attempt.state == ObservedState::kExited) continue;
        attempt.state = ObservedState::kExited;
        attempt.outcome = OutcomeKind::kStopped;
        attempt.failure.reason = "LEASE_EXPIRED";
      }
    }
  }

  void Cordon(FakeWorker& worker) {
    const uint64_t dice = Below(4);
    if (dice == 0) {
      (void)yard_->Apply(CordonWorker{worker.name, "user:op", ""}, now_);
    } else if (dice == 1) {
      (void)yard_->Apply(DrainWorker{worker.name, "user:op", ""}, now_);
    } else {
      (void)yard_->Apply(UncordonWorker{worker.name, "user:op"}, now_);
    }
  }

  std::optional<CheckpointEvaluation> RandomEvaluation() {
    if (Below(3) == 0) return std::nullopt;
    return CheckpointEvaluation{static_cast<double>(Below(9)), static_cast<double>(Below(9)) / 8};
  }

  void Commit(FakeWorker& worker) {
    for (const auto& [id, attempt] : worker.attempts) {
      (void)yard_->Apply(CommitCheckpoint{worker.session,
                                          id,
                                          attempt.token,
                                          static_cast<int64_t>(Below(1000)),
                                          {},
                                          RandomEvaluation()},
                         now_);
    }
  }

  void Restart() {
    auto snapshot = store_.Load();
    ASSERT_TRUE(snapshot.ok());
    ASSERT_EQ(*snapshot, yard_->snapshot());
    yard_ = std::make_unique<Yard>(config_, *std::move(snapshot), now_);
  }

  void Settle() {
    const Turn turn = yard_->Settle(now_);
    if (!turn.delta.empty()) {
      ASSERT_TRUE(store_.Commit(turn.delta).ok());
    }
    // Nothing is left to do at this moment.
    const auto next = yard_->NextDeadline();
    EXPECT_TRUE(!next.has_value() || *next > now_.uptime_us);
  }

  void Check() {
    const Snapshot& state = yard_->snapshot();
    const auto stored = store_.Load();
    ASSERT_TRUE(stored.ok());
    ASSERT_EQ(*stored, state) << "the store and the yard differ";
    CheckWorkers();
    std::map<std::pair<std::string, std::string>, AttemptId> held;
    for (const auto& [id, attempt] : state.attempts) {
      const JobRecord& job = state.jobs.at(id.job);
      EXPECT_LE(attempt.ranks.size(), static_cast<size_t>(job.submission->demand.count));
      EXPECT_GE(attempt.ranks.size(), static_cast<size_t>(job.submission->demand.least()));
      if (attempt_fsm::IsFinal(attempt.state)) {
        const auto first = finals_.emplace(id, attempt).first;
        EXPECT_EQ(first->second, attempt) << "final is final";
        continue;
      }
      EXPECT_EQ(id.number, job.attempt) << "only the newest attempt lives";
      EXPECT_EQ(attempt.fencing_token, job.fencing_token);
      for (const AttemptPart& part : attempt.parts) {
        if (part.state == PartState::kExited || part.state == PartState::kDrained ||
            part.state == PartState::kLost) {
          continue;
        }
        for (const RankPlacement& rank : attempt.ranks) {
          if (rank.worker != part.worker) continue;
          EXPECT_TRUE(held.insert({{rank.worker, rank.device}, id}).second)
              << rank.worker << " " << rank.device << " hosts two attempts";
        }
      }
    }
    for (const auto& [id, job] : state.jobs) {
      EXPECT_GE(job.fencing_token, tokens_[id]) << "tokens grow";
      EXPECT_EQ(job.fencing_token, job.attempt);
      tokens_[id] = job.fencing_token;
      if (job_fsm::IsFinal(job.state)) {
        ended_.emplace(id, job_fsm::Name(job.state));
        EXPECT_GT(job.end_us, 0);
      }
      const auto ended = ended_.find(id);
      EXPECT_TRUE(ended == ended_.end() || ended->second == job_fsm::Name(job.state));
      const bool placed = std::holds_alternative<job_fsm::Starting>(job.state) ||
                          std::holds_alternative<job_fsm::Running>(job.state) ||
                          std::holds_alternative<job_fsm::Stopping>(job.state);
      const auto newest = state.attempts.find({id, job.attempt});
      const bool lives =
          newest != state.attempts.end() && !attempt_fsm::IsFinal(newest->second.state);
      EXPECT_EQ(placed, lives) << JobName(id) << " is " << job_fsm::Name(job.state);
      const bool is_queued = std::holds_alternative<job_fsm::Queued>(job.state);
      EXPECT_EQ(is_queued || (lives && IsOutOfContact(newest->second)),
                !yard_->QueueReasons(id).empty());
      EXPECT_LE(job.retries, job.submission->max_retries);
    }
  }

  // Returns true if a worker that may still run a part of the attempt is out of contact.
  bool IsOutOfContact(const AttemptRecord& attempt) {
    return std::any_of(attempt.parts.begin(), attempt.parts.end(), [this](const AttemptPart& part) {
      return HoldsDevices(part.state) &&
             std::holds_alternative<worker_fsm::Unreachable>(yard_->FindWorker(part.worker)->state);
    });
  }

  // Checks the state outside of the server: no device ever runs two attempts.
  void CheckWorkers() {
    for (const FakeWorker& worker : workers_) {
      std::map<std::string, AttemptId> used;
      for (const auto& [id, attempt] : worker.attempts) {
        if (attempt.state == ObservedState::kExited) continue;
        for (const std::string& device : attempt.devices) {
          EXPECT_TRUE(used.insert({device, id}).second)
              << worker.name << " runs two attempts on " << device;
        }
      }
    }
  }

  static constexpr int64_t kKeep = 60 * kSecond;

  std::mt19937_64 random_;
  Config config_;
  Now now_;
  store::MemoryStore store_;
  std::unique_ptr<Yard> yard_;
  std::vector<FakeWorker> workers_;
  std::map<std::string, int64_t> last_sync_;
  int sessions_ = 0;
  bool calm_ = false;
  std::map<JobId, int64_t> tokens_;
  std::map<JobId, std::string> ended_;
  std::map<AttemptId, AttemptRecord> finals_;
};

TEST(YardRandom, ThePromisesHoldInEveryHistory) {
  for (uint64_t seed = 1; seed <= 150 && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    History history(seed);
    history.Run(120);
  }
}

TEST(YardRandom, WhenFaultsStopEveryJobEnds) {
  for (uint64_t seed = 1001; seed <= 1010 && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    History history(seed);
    history.Run(100);
    history.Calm();
  }
}

}  // namespace
}  // namespace trainyard::core
