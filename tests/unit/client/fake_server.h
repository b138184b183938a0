// Fakes a server of the API in memory, on a Unix socket, for the client's tests. It stores jobs as
// they are given, and a test moves them along.
#pragma once

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
#include "trainyard/v1/checkpoint.grpc.pb.h"
#include "trainyard/v1/fleet.grpc.pb.h"
#include "trainyard/v1/job.grpc.pb.h"
#include "trainyard/v1/sharing.grpc.pb.h"

namespace trainyard::testing {

class FakeServer : public v1::JobService::Service,
                   public v1::CheckpointService::Service,
                   public v1::FleetService::Service,
                   public v1::SharingService::Service {
 public:
  FakeServer();
  ~FakeServer() override;

  const std::string& address() const { return address_; }
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
  // Blocks until this many watches of jobs have been opened since the start, and got their
  // snapshot.
  void WaitForWatches(int count);

  v1::CreateJobRequest last_create();
  v1::CancelJobsRequest last_cancel();
  v1::ListJobsRequest last_list();
  v1::ExplainJobRequest last_explain();
  v1::CreateReservationRequest last_reservation();
  v1::DrainWorkerRequest last_drain();
  v1::DeclareWorkerLostRequest last_lost();
  int downloads();
  int64_t last_download_offset();

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
  std::unique_ptr<grpc::Server> server_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  int64_t revision_ = 0;
  int watches_ = 0;
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
  std::map<std::string, v1::Quota> quotas_;
  std::map<std::string, v1::Reservation> reservations_;
  v1::CreateJobRequest last_create_;
  v1::CancelJobsRequest last_cancel_;
  v1::ListJobsRequest last_list_;
  v1::ExplainJobRequest last_explain_;
  v1::CreateReservationRequest last_reservation_;
  v1::DrainWorkerRequest last_drain_;
  v1::DeclareWorkerLostRequest last_lost_;
  int downloads_ = 0;
  int64_t last_download_offset_ = -1;
};

}  // namespace trainyard::testing
