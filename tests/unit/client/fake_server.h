// Fakes a server of the API in memory, on a Unix socket, for the client's tests. It stores jobs as
// they are given, and a test moves them along.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "grpcpp/server.h"
#include "grpcpp/server_context.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/client/fake_sweeps.h"
#include "trainyard/v1/checkpoint.grpc.pb.h"
#include "trainyard/v1/code.grpc.pb.h"
#include "trainyard/v1/fleet.grpc.pb.h"
#include "trainyard/v1/job.grpc.pb.h"
#include "trainyard/v1/notify.grpc.pb.h"
#include "trainyard/v1/secret.grpc.pb.h"
#include "trainyard/v1/sharing.grpc.pb.h"
#include "trainyard/v1/tunnel.grpc.pb.h"

namespace trainyard::testing {

class FakeServer : public v1::JobService::Service,
                   public v1::CheckpointService::Service,
                   public v1::FleetService::Service,
                   public v1::SharingService::Service,
                   public v1::CodeService::Service,
                   public v1::NotifyService::Service,
                   public v1::SecretService::Service,
                   public v1::TunnelService::Service {
 public:
  FakeServer();
  ~FakeServer() override;

  const std::string& address() const { return address_; }
  FakeSweeps& sweeps() { return sweeps_; }
  // The socket goes away, and comes back with all that was stored.
  void Stop();
  void Start();

  // Tests change jobs by these calls, and watchers see the changes.
  std::string AddJob(const std::string& name, v1::JobState state);
  void ChangeJob(const std::string& job, const std::function<void(v1::Job&)>& change);
  // `time_us` counts from 1970.
  void AddPoint(const std::string& job, int64_t step, const std::string& metric, double value,
                int64_t time_us = 0);
  void AddLog(const std::string& job, int rank, const std::string& text);
  // Adds to the timeline of a rank of the attempt: "jobs/1/attempts/1".
  void AddTrace(const std::string& attempt, int rank, const std::string& text);
  // A checkpoint whose record holds the right hashes, unless the test changes its bytes later.
  void AddCheckpoint(const std::string& job, int64_t step,
                     const std::map<std::string, std::string>& files, bool is_best = false);
  // DeleteJob keeps this checkpoint, and the spec of its job, for another one.
  void KeepOnDelete(const std::string& checkpoint, bool spec);
  void DamageFile(const std::string& checkpoint, const std::string& file);
  // Says that the checkpoint is in the bucket of the server, or why it is not.
  void SetCopy(const std::string& checkpoint, const std::string& copy,
               const std::string& failure = "") {
    const std::lock_guard lock(mutex_);
    checkpoints_.at(checkpoint).set_copy(copy);
    checkpoints_.at(checkpoint).set_copy_failure(failure);
  }
  void AddWorker(const v1::Worker& worker);
  // From now on, jobs that CreateJob makes are in this state at once.
  void MakeNewJobs(v1::JobState state);
  // The next call of CreateJob gives this answer.
  void RefuseNextCreate(const absl::Status& status);
  // Every item of CreateJobs whose spec has this name gets this answer.
  void RefuseItems(const std::string& name, const absl::Status& status);
  // The next stream of CreateJobs breaks after its first message, whose jobs were made.
  void BreakNextStream();
  void SetExplanation(const v1::Explanation& explanation);
  void AddShare(const v1::Share& share);
  void SetUsage(const v1::ListUsageResponse& usage);
  // The only attempt of this job ran in this.
  void SetEnvironment(const std::string& job, const v1::ProgramEnvironment& environment);
  // The next upload of code gets this answer.
  void RefuseNextUpload(const absl::Status& status);
  // The code of a job is sent with another byte from now on.
  void DamageCode(const std::string& job);
  // From now on, tests of targets end so: they are delivered if `result` is empty.
  void FailDeliveries(const std::string& result);
  // ListVerifications tells this result of the job, after those that were added before.
  void AddVerification(const std::string& job, const v1::Verification& verification);
  void SetLineage(const v1::Lineage& lineage);
  // Blocks until this many watches of jobs have been opened since the start, and got their
  // snapshot.
  void WaitForWatches(int count);
  // Blocks until this many logs have been followed since the start, and sent what there was.
  void WaitForTails(int count) {
    std::unique_lock lock(mutex_);
    while (tails_ < count) changed_.wait_for(lock, std::chrono::milliseconds(20));
  }

  v1::CreateJobRequest last_create();
  v1::CloneJobRequest last_clone();
  v1::CancelJobsRequest last_cancel();
  v1::ListJobsRequest last_list();
  v1::ExplainJobRequest last_explain();
  v1::CreateReservationRequest last_reservation();
  v1::DrainWorkerRequest last_drain();
  v1::DeclareWorkerLostRequest last_lost();
  v1::TunnelOpen last_tunnel();
  int downloads();
  int64_t last_download_offset();
  int uploads();
  // The value of a secret, or an empty text.
  std::string SecretValue(const std::string& name);

  grpc::Status CreateJob(grpc::ServerContext*, const v1::CreateJobRequest*, v1::Job*) override;
  grpc::Status CreateJobs(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::CreateJobsResponse, v1::CreateJobsRequest>*) override;
  grpc::Status ExplainJob(grpc::ServerContext*, const v1::ExplainJobRequest*,
                          v1::Explanation*) override;
  grpc::Status ListQueue(grpc::ServerContext*, const v1::ListQueueRequest*,
                         v1::ListQueueResponse*) override;
  grpc::Status CancelJobs(grpc::ServerContext*, const v1::CancelJobsRequest*,
                          v1::CancelJobsResponse*) override;
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*, v1::Job*) override;
  grpc::Status ListJobs(grpc::ServerContext*, const v1::ListJobsRequest*,
                        v1::ListJobsResponse*) override;
  grpc::Status CancelJob(grpc::ServerContext*, const v1::CancelJobRequest*, v1::Job*) override;
  grpc::Status DeleteJobData(grpc::ServerContext*, const v1::DeleteJobDataRequest*,
                             v1::DeleteJobResponse*) override;
  grpc::Status DeleteJob(grpc::ServerContext*, const v1::DeleteJobRequest*,
                         v1::DeleteJobResponse*) override;
  grpc::Status CloneJob(grpc::ServerContext*, const v1::CloneJobRequest*,
                        v1::CloneJobResponse*) override;
  grpc::Status DiffJobs(grpc::ServerContext*, const v1::DiffJobsRequest*,
                        v1::DiffJobsResponse*) override;
  grpc::Status AnnotateJob(grpc::ServerContext*, const v1::AnnotateJobRequest*, v1::Job*) override;
  grpc::Status ListVerifications(grpc::ServerContext*, const v1::ListVerificationsRequest*,
                                 v1::ListVerificationsResponse*) override;
  grpc::Status GetLineage(grpc::ServerContext*, const v1::GetLineageRequest*,
                          v1::Lineage*) override;
  grpc::Status ListEvents(grpc::ServerContext*, const v1::ListEventsRequest*,
                          v1::ListEventsResponse*) override;
  grpc::Status WatchJobs(grpc::ServerContext*, const v1::WatchJobsRequest*,
                         grpc::ServerWriter<v1::WatchJobsResponse>*) override;
  grpc::Status TailLogs(grpc::ServerContext*, const v1::TailLogsRequest*,
                        grpc::ServerWriter<v1::TailLogsResponse>*) override;
  grpc::Status WatchMetrics(grpc::ServerContext*, const v1::WatchMetricsRequest*,
                            grpc::ServerWriter<v1::WatchMetricsResponse>*) override;
  grpc::Status QueryMetrics(grpc::ServerContext*, const v1::QueryMetricsRequest*,
                            v1::QueryMetricsResponse*) override;
  grpc::Status ListCheckpoints(grpc::ServerContext*, const v1::ListCheckpointsRequest*,
                               v1::ListCheckpointsResponse*) override;
  grpc::Status GetCheckpoint(grpc::ServerContext*, const v1::GetCheckpointRequest*,
                             v1::Checkpoint*) override;
  grpc::Status VerifyCheckpoint(grpc::ServerContext*, const v1::VerifyCheckpointRequest*,
                                v1::Checkpoint*) override;
  grpc::Status DownloadCheckpoint(grpc::ServerContext*, const v1::DownloadCheckpointRequest*,
                                  grpc::ServerWriter<v1::DownloadCheckpointResponse>*) override;
  grpc::Status ListWorkers(grpc::ServerContext*, const v1::ListWorkersRequest*,
                           v1::ListWorkersResponse*) override;
  grpc::Status CordonWorker(grpc::ServerContext*, const v1::CordonWorkerRequest*,
                            v1::Worker*) override;
  grpc::Status DrainWorker(grpc::ServerContext*, const v1::DrainWorkerRequest*,
                           v1::Worker*) override;
  grpc::Status DeclareWorkerLost(grpc::ServerContext*, const v1::DeclareWorkerLostRequest*,
                                 v1::Worker*) override;
  grpc::Status DeleteWorker(grpc::ServerContext*, const v1::DeleteWorkerRequest*,
                            v1::DeleteWorkerResponse*) override;
  grpc::Status QuarantineDevice(grpc::ServerContext*, const v1::QuarantineDeviceRequest*,
                                v1::Worker*) override;
  grpc::Status ReleaseDevice(grpc::ServerContext*, const v1::ReleaseDeviceRequest*,
                             v1::Worker*) override;
  grpc::Status SetQuota(grpc::ServerContext*, const v1::SetQuotaRequest*, v1::Quota*) override;
  grpc::Status ListQuotas(grpc::ServerContext*, const v1::ListQuotasRequest*,
                          v1::ListQuotasResponse*) override;
  grpc::Status DeleteQuota(grpc::ServerContext*, const v1::DeleteQuotaRequest*,
                           v1::DeleteQuotaResponse*) override;
  grpc::Status CreateReservation(grpc::ServerContext*, const v1::CreateReservationRequest*,
                                 v1::Reservation*) override;
  grpc::Status ListReservations(grpc::ServerContext*, const v1::ListReservationsRequest*,
                                v1::ListReservationsResponse*) override;
  grpc::Status DeleteReservation(grpc::ServerContext*, const v1::DeleteReservationRequest*,
                                 v1::DeleteReservationResponse*) override;
  grpc::Status ListShares(grpc::ServerContext*, const v1::ListSharesRequest*,
                          v1::ListSharesResponse*) override;
  grpc::Status ListUsage(grpc::ServerContext*, const v1::ListUsageRequest*,
                         v1::ListUsageResponse*) override;
  grpc::Status ListAttempts(grpc::ServerContext*, const v1::ListAttemptsRequest*,
                            v1::ListAttemptsResponse*) override;
  grpc::Status FindCode(grpc::ServerContext*, const v1::FindCodeRequest*,
                        v1::FindCodeResponse*) override;
  grpc::Status UploadCode(grpc::ServerContext*, const v1::UploadCodeRequest*,
                          v1::UploadCodeResponse*) override;
  grpc::Status DownloadCode(grpc::ServerContext*, const v1::DownloadCodeRequest*,
                            grpc::ServerWriter<v1::DownloadCodeResponse>*) override;
  grpc::Status AddTarget(grpc::ServerContext*, const v1::AddTargetRequest*,
                         v1::AddTargetResponse*) override;
  grpc::Status ListTargets(grpc::ServerContext*, const v1::ListTargetsRequest*,
                           v1::ListTargetsResponse*) override;
  grpc::Status DeleteTarget(grpc::ServerContext*, const v1::DeleteTargetRequest*,
                            v1::DeleteTargetResponse*) override;
  grpc::Status TestTarget(grpc::ServerContext*, const v1::TestTargetRequest*,
                          v1::Delivery*) override;
  grpc::Status ListDeliveries(grpc::ServerContext*, const v1::ListDeliveriesRequest*,
                              v1::ListDeliveriesResponse*) override;
  grpc::Status SetSecret(grpc::ServerContext*, const v1::SetSecretRequest*, v1::Secret*) override;
  grpc::Status ListSecrets(grpc::ServerContext*, const v1::ListSecretsRequest*,
                           v1::ListSecretsResponse*) override;
  grpc::Status DeleteSecret(grpc::ServerContext*, const v1::DeleteSecretRequest*,
                            v1::DeleteSecretResponse*) override;
  // A command prints its words and its input, each in a line, and ends with code 7; the command
  // "missing" cannot be executed, and "kill" dies of SIGKILL. A port sends back what it gets.
  grpc::Status OpenTunnel(grpc::ServerContext*,
                          grpc::ServerReaderWriter<v1::TunnelFrame, v1::TunnelFrame>*) override;

 private:
  grpc::Status SetAside(const std::string& worker, const std::string& device,
                        const std::string& reason, v1::Worker* response);
  // Waits for the next change. Returns false if the server stops or the client has gone.
  bool WaitForChange(std::unique_lock<std::mutex>& lock, grpc::ServerContext& context);
  // Deletes parts of a job, under the lock, or says what would be deleted.
  grpc::Status DeleteParts(const std::string& name, const std::set<v1::JobPart>& parts,
                           bool is_trial, v1::DeleteJobResponse& response);
  // Finds a job, under the lock. Returns NOT_FOUND with the text of the real server.
  grpc::Status Find(const std::string& name, v1::Job*& job);

  TempDir dir_;
  std::string address_;
  FakeSweeps sweeps_;
  std::unique_ptr<grpc::Server> server_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  int64_t revision_ = 0;
  int watches_ = 0;
  int tails_ = 0;
  std::vector<std::unique_ptr<v1::Job>> jobs_;
  std::map<std::string, int64_t> revision_of_;
  std::map<std::string, std::string> job_of_request_;
  std::map<std::string, std::vector<v1::MetricPoint>> points_;
  std::map<std::string, std::map<int, std::string>> logs_;
  std::map<std::string, std::map<int, std::string>> traces_;
  std::map<std::string, v1::Checkpoint> checkpoints_;
  std::map<std::pair<std::string, std::string>, std::string> files_;
  std::set<std::string> deleted_jobs_;
  std::set<std::string> kept_checkpoints_;
  bool keeps_spec_ = false;
  std::map<std::string, v1::Worker> workers_;
  v1::JobState new_job_state_ = v1::JOB_STATE_QUEUED;
  absl::Status refuse_create_;
  std::map<std::string, absl::Status> refused_items_;
  bool break_stream_ = false;
  v1::Explanation explanation_;
  v1::ListSharesResponse shares_;
  v1::ListUsageResponse usage_;
  std::map<std::string, v1::ListVerificationsResponse> verifications_;
  v1::Lineage lineage_;
  std::map<std::string, v1::Quota> quotas_;
  std::map<std::string, v1::Reservation> reservations_;
  std::map<std::string, v1::ProgramEnvironment> environments_;
  std::map<std::string, std::string> code_;     // by digest
  std::map<std::string, std::string> uploads_;  // that are not complete, by digest
  absl::Status refuse_upload_;
  std::map<std::string, v1::NotifyTarget> targets_;
  std::vector<v1::Delivery> deliveries_;  // the newest last
  std::string delivery_failure_;
  std::map<std::string, std::string> secrets_;
  v1::TunnelOpen last_tunnel_;
  v1::CreateJobRequest last_create_;
  v1::CloneJobRequest last_clone_;
  v1::CancelJobsRequest last_cancel_;
  v1::ListJobsRequest last_list_;
  v1::ExplainJobRequest last_explain_;
  v1::CreateReservationRequest last_reservation_;
  v1::DrainWorkerRequest last_drain_;
  v1::DeclareWorkerLostRequest last_lost_;
  int downloads_ = 0;
  int64_t last_download_offset_ = -1;
  int upload_calls_ = 0;
};

}  // namespace trainyard::testing
