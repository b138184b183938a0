// A fixed story of a user and a worker against the real server, which may die or refuse at any
// point: three submissions, a placement, streams and a checkpoint, a finish, and cancellations of a
// waiting and of a running job. Whatever fails is sent again, and a dead server is started again,
// until the story is over. Then Verify compares all that the server shows with what it has
// acknowledged.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grpcpp/grpcpp.h"
#include "tests/faults/report.h"
#include "tests/faults/shim.h"
#include "tests/integration/yard.h"
#include "trainyard/v1/agent.grpc.pb.h"
#include "trainyard/v1/checkpoint.grpc.pb.h"

namespace trainyard::testing {

class Script {
 public:
  // The checkpoint that the story commits, if its jobs are the first ones.
  static constexpr char kCheckpoint[] = "jobs/1/checkpoints/40";

  // The row takes counts and times; it and the shim are borrowed.
  Script(Shim& shim, FaultRow& row, Yard::Options options = {});
  ~Script();
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;

  // Is armed each time before a dead server is started again, and disarmed once it serves.
  void set_recovery_fault(const Shim::Fault& fault) { recovery_fault_ = fault; }

  // Is called with each refusal of a server that lives on.
  void set_on_refusal(std::function<void(const absl::Status&)> on_refusal) {
    on_refusal_ = std::move(on_refusal);
  }

  // Starts the server. The fault is armed once it serves.
  void Start(const Shim::Fault& fault);
  // Tells the whole story.
  void Run();
  // Fails the test if anything that was acknowledged is lost or doubled. Ends the server.
  void Verify();

  // Submits a job with this request id. Returns its name, or nothing if the test has failed.
  std::string Submit(const std::string& request_id);
  void Cancel(const std::string& job);
  // Kills the server and starts it again.
  void Restart();

  Yard& yard() { return *yard_; }
  // Returns the number of calls that were refused by a server that lived on.
  int64_t refusals() const { return refusals_; }

 private:
  using Call = std::function<grpc::Status(grpc::ClientContext&)>;

  // Repeats the call until it succeeds. Starts a dead server, and a session that has ended.
  void Insist(const std::string& what, const Call& call);
  bool HandleFailure(const std::string& what, const grpc::Status& status);
  void Revive();
  void Connect();
  void Register();

  // Reports all observed attempts once. Returns what the server wants, at once or when it wants
  // something new.
  v1::SyncWorkerResponse Sync(bool waits = false);
  // Does so until the server wants this of an attempt of the job.
  v1::DesiredAttempt Await(const std::string& job, v1::DesiredAttempt::Action action);
  void Observe(const v1::DesiredAttempt& attempt, v1::ObservedState state);
  // Reports the end of the attempt until the server asks for its removal.
  void End(const v1::DesiredAttempt& attempt, v1::AttemptOutcome::Kind kind);
  void SendStreams(const v1::DesiredAttempt& attempt);
  void SendFiles(const v1::DesiredAttempt& attempt);
  void SendCheckpoint(const v1::DesiredAttempt& attempt);

  void VerifyJobs();
  void VerifyStreams(const std::string& job);
  void VerifyCheckpoint(const std::string& job);
  void VerifyDatabases();

  Shim& shim_;
  FaultRow& row_;
  std::optional<Shim::Fault> recovery_fault_;
  std::function<void(const absl::Status&)> on_refusal_ = [](const absl::Status&) {};
  std::unique_ptr<Yard> yard_;
  std::unique_ptr<v1::AgentService::Stub> agents_;
  std::unique_ptr<v1::CheckpointService::Stub> checkpoints_;
  std::string session_;
  int64_t sequence_ = 0;
  int64_t desired_revision_ = 0;
  int64_t refusals_ = 0;
  std::map<std::string, v1::ObservedAttempt> observed_;
  // The jobs that were acknowledged, by request id.
  std::map<std::string, v1::Job> acknowledged_;
};

}  // namespace trainyard::testing
