// Implements JobService, which submits, shows, changes and follows jobs. Handlers validate, post to
// the runtime or read the board, and never block. The streams are in job_streams.h.
#pragma once

#include "server/rpc/gate.h"
#include "server/rpc/job_messages.h"
#include "server/rpc/services.h"
#include "trainyard/v1/job.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class JobServiceImpl
    : public v1::JobService::WithRawCallbackMethod_WatchJobs<v1::JobService::CallbackService> {
 public:
  explicit JobServiceImpl(Services& services);

  TY_UNARY_RPC(JobService, CreateJob, CreateJobRequest, Job);
  grpc::ServerBidiReactor<v1::CreateJobsRequest, v1::CreateJobsResponse>* CreateJobs(
      grpc::CallbackServerContext* context) override;
  TY_UNARY_RPC(JobService, ExplainJob, ExplainJobRequest, Explanation);
  TY_UNARY_RPC(JobService, GetJob, GetJobRequest, Job);
  TY_UNARY_RPC(JobService, ListJobs, ListJobsRequest, ListJobsResponse);
  TY_UNARY_RPC(JobService, ListQueue, ListQueueRequest, ListQueueResponse);
  TY_UNARY_RPC(JobService, CancelJob, CancelJobRequest, Job);
  TY_UNARY_RPC(JobService, CancelJobs, CancelJobsRequest, CancelJobsResponse);
  TY_UNARY_RPC(JobService, SuspendJob, SuspendJobRequest, Job);
  TY_UNARY_RPC(JobService, ResumeJob, ResumeJobRequest, Job);
  TY_UNARY_RPC(JobService, DeleteJob, DeleteJobRequest, DeleteJobResponse);
  TY_UNARY_RPC(JobService, DeleteJobData, DeleteJobDataRequest, DeleteJobResponse);
  TY_UNARY_RPC(JobService, CloneJob, CloneJobRequest, CloneJobResponse);
  TY_UNARY_RPC(JobService, DiffJobs, DiffJobsRequest, DiffJobsResponse);
  TY_UNARY_RPC(JobService, ListAttempts, ListAttemptsRequest, ListAttemptsResponse);
  TY_UNARY_RPC(JobService, ListEvents, ListEventsRequest, ListEventsResponse);
  TY_BYTES_STREAM_RPC(JobService, WatchJobs, WatchJobsRequest);
  TY_STREAM_RPC(JobService, TailLogs, TailLogsRequest, TailLogsResponse);
  TY_STREAM_RPC(JobService, WatchMetrics, WatchMetricsRequest, WatchMetricsResponse);
  TY_UNARY_RPC(JobService, QueryMetrics, QueryMetricsRequest, QueryMetricsResponse);
  TY_UNARY_RPC(JobService, AnnotateJob, AnnotateJobRequest, Job);
  TY_UNARY_RPC(JobService, ListVerifications, ListVerificationsRequest, ListVerificationsResponse);
  TY_UNARY_RPC(JobService, GetLineage, GetLineageRequest, Lineage);

 private:
  Services& services_;
  JobMessages messages_;
};

}  // namespace trainyard::rpc
