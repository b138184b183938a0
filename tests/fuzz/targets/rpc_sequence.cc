// Plays sequences of calls of users and of a worker against a server, and compares it with a model
// of what a server is: what was acknowledged is there, what has ended stays as it is, and no device
// has two owners.
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/hash.h"
#include "common/base/ids.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/service.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz::rpc_sequence {
namespace {

constexpr int kStepsMax = 64;
constexpr size_t kJobsMax = 24;

class Player {
 public:
  explicit Player(absl::string_view bytes) : input_(bytes) {}

  void Play() {
    Register();
    for (int i = 0; i < kStepsMax && !input_.empty(); ++i) {
      Step();
      Check();
    }
  }

 private:
  using Jobs = rpc::JobServiceImpl;
  using Fleet = rpc::FleetServiceImpl;
  using Agents = rpc::AgentServiceImpl;

  template <typename Impl, typename Request, typename Response>
  grpc::StatusCode Call(Impl& impl, UnaryHandler<Impl, Request, Response> handler,
                        const Request& request, Response& response) {
    const grpc::StatusCode code = CallHandler(impl, handler, request, response).error_code();
    TY_CHECK(code != grpc::StatusCode::INTERNAL && code != grpc::StatusCode::UNKNOWN);
    return code;
  }
  template <typename Request>
  grpc::StatusCode CallJob(grpc::ServerUnaryReactor* (Jobs::*handler)(const access::Caller&,
                                                                      grpc::CallbackServerContext*,
                                                                      const Request*, v1::Job*)) {
    Request request;
    request.set_name(SomeJob());
    v1::Job job;
    return Call(service_.jobs(), handler, request, job);
  }
  template <typename Request>
  void CallWorker(grpc::ServerUnaryReactor* (Fleet::*handler)(const access::Caller&,
                                                              grpc::CallbackServerContext*,
                                                              const Request*, v1::Worker*)) {
    Request request;
    request.set_name("workers/lab-1");
    v1::Worker worker;
    Call(service_.fleet(), handler, request, worker);
  }

  // Returns the name of a job that exists, or of one that may not.
  std::string SomeJob() { return JobName(JobId{static_cast<int64_t>(1 + input_.Below(kJobsMax))}); }

  void Register() {
    session_ = service_.Register();
    sequence_ = 0;
    desired_.Clear();
  }

  void Step();
  void Create();
  void Cancel();
  void Delete();
  void Clone();
  void Sync();
  void Append();
  void Commit();
  void TurnDevice();
  void Share();
  void Check();
  void CheckAttempts(const core::Snapshot& now);
  void CheckList(const core::Snapshot& now);

  Input input_;
  Service service_;
  std::string session_;
  int64_t sequence_ = 0;
  v1::SyncWorkerResponse desired_;  // the last answer to the worker

  // The model: the jobs that were acknowledged and not deleted, and the ends of those that ended.
  std::set<JobId> jobs_;
  std::map<JobId, size_t> ends_;
  int64_t revision_ = 0;
  int64_t next_job_ = 1;
};

void Player::Create() {
  if (jobs_.size() >= kJobsMax) return;
  v1::CreateJobRequest request;
  *request.mutable_spec() = Service::Spec("job");
  v1::JobSpec& spec = *request.mutable_spec();
  spec.mutable_devices()->set_count(static_cast<int32_t>(1 + input_.Below(3)));
  spec.set_priority(static_cast<int32_t>(input_.Below(3)));
  const uint8_t options = input_.Byte();
  if ((options & 1) != 0) request.mutable_options()->set_array_size(2);
  if ((options & 2) != 0) request.mutable_options()->add_after_ok(SomeJob());
  if ((options & 4) != 0) request.mutable_options()->add_after(SomeJob());
  if ((options & 8) != 0) request.set_request_id("again");
  if ((options & 16) != 0) {
    request.mutable_options()->mutable_begin_time()->set_seconds(
        absl::ToUnixSeconds(service_.clock().Now()) + input_.Byte());
  }
  if ((options & 32) != 0) {
    spec.mutable_devices()->clear_count();
    spec.mutable_devices()->set_min(1);
    spec.mutable_devices()->set_max(2);
    spec.mutable_train()->set_replicas(2);
  }
  v1::Job job;
  if (Call(service_.jobs(), &Jobs::CreateJob, request, job) != grpc::StatusCode::OK) return;
  const auto id = ParseJobName(job.name());
  TY_CHECK_OK(id.status());
  const int count = std::max(1, job.array_size());
  for (int i = 0; i < count; ++i) jobs_.insert(JobId{id->value + i});
}

void Player::Cancel() {
  v1::CancelJobRequest request;
  request.set_name(SomeJob());
  v1::Job job;
  const grpc::StatusCode code = Call(service_.jobs(), &Jobs::CancelJob, request, job);
  const bool exists = jobs_.contains(*ParseJobName(request.name()));
  TY_CHECK(exists == (code != grpc::StatusCode::NOT_FOUND));
  if (code != grpc::StatusCode::OK) return;
  TY_CHECK(job.state() == v1::JOB_STATE_CANCELLED || job.state() == v1::JOB_STATE_STOPPING);
}

void Player::Delete() {
  v1::DeleteJobRequest request;
  request.set_name(SomeJob());
  const uint8_t options = input_.Byte();
  request.set_validate_only((options & 1) != 0);
  request.set_checkpoints_only((options & 2) != 0);
  v1::DeleteJobResponse response;
  const grpc::StatusCode code = Call(service_.jobs(), &Jobs::DeleteJob, request, response);
  const JobId id = *ParseJobName(request.name());
  if (code != grpc::StatusCode::OK || (options & 3) != 0 || !jobs_.contains(id)) return;
  TY_CHECK(ends_.contains(id));  // only what has ended can be deleted
  jobs_.erase(id);
  ends_.erase(id);
}

void Player::Clone() {
  if (jobs_.size() >= kJobsMax) return;
  v1::CloneJobRequest request;
  request.set_name(SomeJob());
  v1::SpecChange* change = request.add_changes();
  change->set_path("train.seed");
  change->set_value_json(absl::StrCat(input_.Byte()));
  v1::CloneJobResponse response;
  const grpc::StatusCode code = Call(service_.jobs(), &Jobs::CloneJob, request, response);
  if (code != grpc::StatusCode::OK) return;
  TY_CHECK(jobs_.contains(*ParseJobName(request.name())));
  jobs_.insert(*ParseJobName(response.job().name()));
}

// Reports a state of each attempt that the worker was last told about.
void Player::Sync() {
  v1::SyncWorkerRequest request;
  request.set_session(session_);
  request.set_sequence(++sequence_);
  const int count = std::min(desired_.attempts_size(), 8);
  for (int i = 0; i < count; ++i) {
    const uint8_t report = input_.Byte();
    if (report % 8 == 0) continue;  // as if it had never heard of it
    v1::ObservedAttempt* attempt = request.add_attempts();
    attempt->set_attempt(desired_.attempts(i).attempt());
    attempt->set_fencing_token(desired_.attempts(i).fencing_token());
    attempt->set_state(static_cast<v1::ObservedState>(1 + report % 4));
    attempt->mutable_progress()->set_step(report);
    if (attempt->state() != v1::OBSERVED_STATE_EXITED) continue;
    attempt->set_drained((report & 32) != 0);
    attempt->mutable_outcome()->set_kind(
        static_cast<v1::AttemptOutcome::Kind>(1 + (report >> 6) % 3));
    attempt->mutable_outcome()->mutable_failure()->set_failure_class(
        static_cast<v1::FailureClass>(1 + (report >> 3) % 3));
  }
  v1::SyncWorkerResponse response;
  const grpc::StatusCode code = Call(service_.agents(), &Agents::SyncWorker, request, response);
  if (code == grpc::StatusCode::OK) {
    desired_ = response;
  } else {
    Register();
  }
}

void Player::Append() {
  if (desired_.attempts().empty()) return;
  const v1::DesiredAttempt& attempt = desired_.attempts(0);
  v1::AppendLogRequest request;
  request.set_session(session_);
  request.set_attempt(attempt.attempt());
  request.set_fencing_token(attempt.fencing_token() - static_cast<int64_t>(input_.Below(2)));
  request.set_offset(static_cast<int64_t>(input_.Below(4)));
  request.set_data("epoch 1\n");
  v1::AppendResponse response;
  Call(service_.agents(), &Agents::AppendLog, request, response);
}

void Player::Commit() {
  if (desired_.attempts().empty()) return;
  const v1::DesiredAttempt& attempt = desired_.attempts(0);
  v1::AppendCheckpointFileRequest request;
  request.set_session(session_);
  request.set_attempt(attempt.attempt());
  request.set_fencing_token(attempt.fencing_token());
  request.set_step(1 + static_cast<int64_t>(input_.Below(8)));
  const std::string content = absl::StrCat("weights of step ", request.step());
  request.mutable_file()->set_name("model.safetensors");
  request.mutable_file()->set_size(static_cast<int64_t>(content.size()));
  request.mutable_file()->set_hash(ContentHash(content));
  request.set_data(content);
  v1::AppendResponse appended;
  Call(service_.agents(), &Agents::AppendCheckpointFile, request, appended);
  v1::CommitCheckpointRequest commit;
  commit.set_session(session_);
  commit.set_attempt(attempt.attempt());
  commit.set_fencing_token(attempt.fencing_token());
  commit.set_step(request.step());
  *commit.add_files() = request.file();
  v1::CommitCheckpointResponse response;
  Call(service_.agents(), &Agents::CommitCheckpoint, commit, response);
}

void Player::TurnDevice() {
  const uint8_t choice = input_.Byte();
  v1::Worker worker;
  const std::string device = absl::StrCat("cpu-", choice % 3);
  if (choice < 128) {
    v1::QuarantineDeviceRequest request;
    request.set_worker("workers/lab-1");
    request.set_device(device);
    request.set_reason("hot");
    Call(service_.fleet(), &Fleet::QuarantineDevice, request, worker);
  } else {
    v1::ReleaseDeviceRequest request;
    request.set_worker("workers/lab-1");
    request.set_device(device);
    Call(service_.fleet(), &Fleet::ReleaseDevice, request, worker);
  }
}

// Sets a quota, or reserves a device.
void Player::Share() {
  const uint8_t choice = input_.Byte();
  if (choice < 128) {
    v1::SetQuotaRequest request;
    request.mutable_quota()->set_subject("user:operator");
    request.mutable_quota()->set_devices(choice % 4);
    request.mutable_quota()->set_queued_jobs((choice >> 2) % 8);
    v1::Quota quota;
    Call(service_.sharing(), &rpc::SharingServiceImpl::SetQuota, request, quota);
    return;
  }
  v1::CreateReservationRequest request;
  v1::Reservation& reservation = *request.mutable_reservation();
  reservation.set_name(absl::StrCat("r", choice % 4));
  const int64_t now = absl::ToUnixSeconds(service_.clock().Now());
  reservation.mutable_start_time()->set_seconds(now + choice % 8);
  reservation.mutable_end_time()->set_seconds(now + choice);
  reservation.add_subjects(choice % 2 == 0 ? "user:operator" : "user:anna");
  request.set_count(1);
  v1::Reservation made;
  Call(service_.sharing(), &rpc::SharingServiceImpl::CreateReservation, request, made);
}

void Player::Step() {
  switch (input_.Below(20)) {
    case 0:
    case 1:
      return Create();
    case 2:
      return Cancel();
    case 3:
      CallJob<v1::SuspendJobRequest>(&Jobs::SuspendJob);
      return;
    case 4:
      CallJob<v1::ResumeJobRequest>(&Jobs::ResumeJob);
      return;
    case 5:
      return Delete();
    case 6:
      return Clone();
    case 7:
    case 8:
    case 9:
    case 10:
      return Sync();
    case 11:
      return service_.clock().Advance(absl::Seconds(input_.Byte()));
    case 12:
      return service_.Restart();
    case 13:
      return Register();
    case 14:
      return Append();
    case 15:
      return Commit();
    case 16:
      return TurnDevice();
    case 17:
      return Share();
    case 18:
      return input_.Below(2) == 0 ? CallWorker<v1::CordonWorkerRequest>(&Fleet::CordonWorker)
                                  : CallWorker<v1::UncordonWorkerRequest>(&Fleet::UncordonWorker);
    default:
      return input_.Below(2) == 0
                 ? CallWorker<v1::DrainWorkerRequest>(&Fleet::DrainWorker)
                 : CallWorker<v1::DeclareWorkerLostRequest>(&Fleet::DeclareWorkerLost);
  }
}

void Player::CheckAttempts(const core::Snapshot& now) {
  std::set<std::pair<std::string, std::string>> held;
  std::set<JobId> with_attempt;
  for (const auto& [id, attempt] : now.attempts) {
    TY_CHECK(now.jobs.contains(id.job));
    for (const core::RankPlacement& rank : attempt.ranks) {
      const core::AttemptPart* part = core::FindPart(attempt, rank.worker);
      TY_CHECK(part != nullptr);
      if (!core::HoldsDevices(part->state)) continue;
      TY_CHECK(held.insert({rank.worker, rank.device}).second);  // a device has one owner
    }
    if (core::attempt_fsm::IsFinal(attempt.state)) continue;
    TY_CHECK(with_attempt.insert(id.job).second);  // a job has one live attempt
    const core::JobRecord& job = now.jobs.at(id.job);
    TY_CHECK(job.attempt == id.number && job.fencing_token == attempt.fencing_token);
    TY_CHECK(!core::job_fsm::IsFinal(job.state));
  }
}

// Pages through all jobs.
void Player::CheckList(const core::Snapshot& now) {
  std::set<JobId> listed;
  v1::ListJobsRequest request;
  request.set_page_size(7);
  do {
    v1::ListJobsResponse response;
    TY_CHECK(Call(service_.jobs(), &Jobs::ListJobs, request, response) == grpc::StatusCode::OK);
    for (const v1::Job& job : response.jobs()) {
      TY_CHECK(listed.insert(*ParseJobName(job.name())).second);
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  TY_CHECK(listed.size() == now.jobs.size());
}

void Player::Check() {
  const core::Snapshot now = service_.Snapshot();
  TY_CHECK(now.revision >= revision_ && now.next_job >= next_job_);
  revision_ = now.revision;
  next_job_ = now.next_job;
  TY_CHECK(now.jobs.size() == jobs_.size());
  for (const JobId id : jobs_) {
    const auto found = now.jobs.find(id);
    TY_CHECK(found != now.jobs.end() && id.value < now.next_job);
    const core::JobState& state = found->second.state;
    if (const auto end = ends_.find(id); end != ends_.end()) TY_CHECK(state.index() == end->second);
    if (core::job_fsm::IsFinal(state)) ends_[id] = state.index();
  }
  CheckAttempts(now);
  CheckList(now);
}

void Run(absl::string_view bytes) {
  Player(bytes).Play();
}

const Registration kTarget(
    {.name = "rpc_sequence", .run = Run, .fixed_bytes = kServiceBytes, .is_slow = true});

}  // namespace
}  // namespace trainyard::fuzz::rpc_sequence
