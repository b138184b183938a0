// Implements JobService, which submits, shows, changes and follows jobs. Handlers validate, post to
// the runtime or read the board, and never block. The streams are in job_streams.h.
#pragma once

#include "server/rpc/services.h"
#include "trainyard/v1/job.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class JobServiceImpl : public v1::JobService::CallbackService {
 public:
  explicit JobServiceImpl(Services& services) : services_(services) {}

  grpc::ServerUnaryReactor* CreateJob(grpc::CallbackServerContext* context,
                                      const v1::CreateJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerBidiReactor<v1::CreateJobsRequest, v1::CreateJobsResponse>* CreateJobs(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* ExplainJob(grpc::CallbackServerContext* context,
                                       const v1::ExplainJobRequest* request,
                                       v1::Explanation* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request, v1::Job* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* ListQueue(grpc::CallbackServerContext* context,
                                      const v1::ListQueueRequest* request,
                                      v1::ListQueueResponse* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* CancelJobs(grpc::CallbackServerContext* context,
                                       const v1::CancelJobsRequest* request,
                                       v1::CancelJobsResponse* response) override;
  grpc::ServerUnaryReactor* SuspendJob(grpc::CallbackServerContext* context,
                                       const v1::SuspendJobRequest* request,
                                       v1::Job* response) override;
  grpc::ServerUnaryReactor* ResumeJob(grpc::CallbackServerContext* context,
                                      const v1::ResumeJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      v1::DeleteJobResponse* response) override;
  grpc::ServerUnaryReactor* CloneJob(grpc::CallbackServerContext* context,
                                     const v1::CloneJobRequest* request,
                                     v1::CloneJobResponse* response) override;
  grpc::ServerUnaryReactor* DiffJobs(grpc::CallbackServerContext* context,
                                     const v1::DiffJobsRequest* request,
                                     v1::DiffJobsResponse* response) override;
  grpc::ServerUnaryReactor* ListAttempts(grpc::CallbackServerContext* context,
                                         const v1::ListAttemptsRequest* request,
                                         v1::ListAttemptsResponse* response) override;
  grpc::ServerUnaryReactor* ListEvents(grpc::CallbackServerContext* context,
                                       const v1::ListEventsRequest* request,
                                       v1::ListEventsResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchJobsResponse>* WatchJobs(
      grpc::CallbackServerContext* context, const v1::WatchJobsRequest* request) override;
  grpc::ServerWriteReactor<v1::TailLogsResponse>* TailLogs(
      grpc::CallbackServerContext* context, const v1::TailLogsRequest* request) override;
  grpc::ServerWriteReactor<v1::WatchMetricsResponse>* WatchMetrics(
      grpc::CallbackServerContext* context, const v1::WatchMetricsRequest* request) override;
  grpc::ServerUnaryReactor* QueryMetrics(grpc::CallbackServerContext* context,
                                         const v1::QueryMetricsRequest* request,
                                         v1::QueryMetricsResponse* response) override;

 private:
  Services& services_;
};

}  // namespace trainyard::rpc
