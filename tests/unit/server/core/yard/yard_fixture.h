// A yard for tests: its clock, its store, and workers whose calls the test makes.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "server/core/yard/yard.h"
#include "server/store/memory_store.h"

namespace trainyard::core {

// Every Settle is committed, as in the runtime. Time stands still unless the test moves it.
class YardTest : public ::testing::Test {
 protected:
  YardTest() : yard_(std::make_unique<Yard>(config_, Snapshot{}, now_)) {}

  // A pass is made only when something happens, unless the test says otherwise.
  static Config TestConfig() {
    Config config;
    config.replan_us = 1000 * kHour;
    return config;
  }

  // Forgets everything that is not stored.
  void Restart() {
    auto snapshot = store_.Load();
    TY_CHECK_OK(snapshot.status());
    yard_ = std::make_unique<Yard>(config_, *std::move(snapshot), now_);
    Settle();
  }

  absl::Status Apply(const Input& input) {
    const auto reply = yard_->Apply(input, now_);
    Settle();
    return reply.status();
  }

  void Settle() {
    turn_ = yard_->Settle(now_);
    if (!turn_.delta.empty()) TY_CHECK_OK(store_.Commit(turn_.delta));
    for (const EventRecord& event : turn_.delta.events) events_.push_back(event);
  }

  void Advance(int64_t us) {
    now_.uptime_us += us;
    now_.wall_us += us;
    Settle();
  }

  static Submission Spec(int32_t devices) {
    Submission submission;
    submission.uid = "uid";
    submission.name = "convnet";
    submission.user = "anna";
    submission.resolved_spec = "spec bytes";
    submission.demand = {devices, "cpu", false};
    submission.max_retries = 3;
    submission.disconnect_keep_us = 10 * kMinute;
    submission.checkpoints_kept = 2;
    // Tests may submit before the workers join that the job needs.
    submission.wait_for_devices = true;
    return submission;
  }

  JobId Submit(const Submission& submission) {
    const auto reply = yard_->Apply(
        SubmitJob{std::make_shared<Submission>(submission), "", "", "user:anna"}, now_);
    TY_CHECK_OK(reply.status());
    Settle();
    return reply->job;
  }
  JobId Submit(int32_t devices) { return Submit(Spec(devices)); }

  static std::vector<DeviceRecord> Cpus(int count) {
    std::vector<DeviceRecord> devices;
    for (int i = 0; i < count; ++i) {
      DeviceRecord device;
      device.name = absl::StrCat("cpu-", i);
      device.type = "cpu";
      devices.push_back(device);
    }
    return devices;
  }

  // Registers the worker; the session is WORKER/NUMBER.
  absl::Status Register(const std::string& worker, std::vector<DeviceRecord> devices,
                        const std::string& uid = "") {
    sessions_[worker] = absl::StrCat(worker, "/", ++last_session_);
    sequences_[worker] = 0;
    return Apply(RegisterWorker{worker, uid.empty() ? worker : uid, sessions_[worker], "1.0",
                                worker, "10.0.0.1", std::move(devices)});
  }
  absl::Status Register(const std::string& worker, int devices, const std::string& uid = "") {
    return Register(worker, Cpus(devices), uid);
  }
  // Registers the worker, and reports that nothing runs.
  void Join(const std::string& worker, int devices) {
    TY_CHECK_OK(Register(worker, devices));
    TY_CHECK_OK(Sync(worker, {}));
  }

  absl::Status Sync(const std::string& worker, std::vector<ObservedAttempt> attempts) {
    SyncReport report;
    report.session = sessions_[worker];
    report.sequence = ++sequences_[worker];
    report.desired_revision = yard_->DesiredRevision(worker);
    report.attempts = std::move(attempts);
    return Apply(report);
  }
  // Reports that nothing runs, and the data sets of the worker with their hashes.
  absl::Status TellDatasets(const std::string& worker, std::map<std::string, std::string> digests) {
    SyncReport report;
    report.session = sessions_[worker];
    report.sequence = ++sequences_[worker];
    report.desired_revision = yard_->DesiredRevision(worker);
    report.datasets =
        std::make_shared<const WorkerDatasets>(WorkerDatasets{std::move(digests), "bytes"});
    return Apply(report);
  }

  // The newest attempt of a job, as a worker sees it.
  ObservedAttempt See(JobId job, ObservedState state) {
    ObservedAttempt seen;
    seen.attempt = {job, Job(job).attempt};
    seen.fencing_token = Job(job).fencing_token;
    seen.state = state;
    return seen;
  }
  ObservedAttempt SeeExit(JobId job, OutcomeKind kind, Failure failure = {}) {
    ObservedAttempt seen = See(job, ObservedState::kExited);
    seen.outcome.kind = kind;
    seen.outcome.failure = std::move(failure);
    seen.drained = true;
    return seen;
  }

  void Run(const std::string& worker, JobId job) {
    TY_CHECK_OK(Sync(worker, {See(job, ObservedState::kRunning)}));
  }

  const JobRecord& Job(JobId job) { return *yard_->FindJob(job); }
  std::string State(JobId job) { return std::string(job_fsm::Name(Job(job).state)); }
  std::string AttemptState(JobId job, int32_t number) {
    return std::string(attempt_fsm::Name(yard_->FindAttempt({job, number})->state));
  }
  std::string WorkerState(const std::string& worker) {
    return std::string(worker_fsm::Name(yard_->FindWorker(worker)->state));
  }
  // "jobs/1/attempts/1 RUN; ..." as the worker is told.
  std::string Desired(const std::string& worker) {
    std::string text;
    for (const DesiredAttempt& desired : yard_->DesiredFor(worker)) {
      absl::StrAppend(&text, text.empty() ? "" : "; ", AttemptName(desired.attempt), " ",
                      desired.action == DesiredAction::kRun    ? "RUN"
                      : desired.action == DesiredAction::kStop ? "STOP"
                                                               : "REMOVE");
      if (desired.action == DesiredAction::kStop) {
        absl::StrAppend(&text, " ", Text(desired.stop_reason));
      }
    }
    return text;
  }
  bool HasEvent(const std::string& type) {
    for (const EventRecord& event : events_) {
      if (event.type == type) return true;
    }
    return false;
  }

  Config config_ = TestConfig();
  Now now_{1'790'000'000 * kSecond, 1000 * kSecond};
  store::MemoryStore store_;
  std::unique_ptr<Yard> yard_;
  Turn turn_;  // of the last Settle
  std::vector<EventRecord> events_;
  std::map<std::string, std::string> sessions_;
  std::map<std::string, int64_t> sequences_;
  int last_session_ = 0;
};

}  // namespace trainyard::core
