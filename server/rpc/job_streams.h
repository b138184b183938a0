// The streams of JobService: jobs, logs and metrics as they come.
#pragma once

#include "grpcpp/support/server_callback.h"
#include "server/rpc/services.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::rpc {

// Jobs in ascending order of revision: what was there at first, then what changes. A slow watcher
// gets only the newest state of each job.
grpc::ServerWriteReactor<v1::WatchJobsResponse>* StartWatchJobs(
    Services& services, const v1::WatchJobsRequest& request);

// Bytes of the ranks' logs. Following a job goes on with its next attempt, from its first byte, and
// ends when the job has ended and everything was sent.
grpc::ServerWriteReactor<v1::TailLogsResponse>* StartTailLogs(Services& services,
                                                              const v1::TailLogsRequest& request);

// Points in order of arrival; ends as StartTailLogs.
grpc::ServerWriteReactor<v1::WatchMetricsResponse>* StartWatchMetrics(
    Services& services, const v1::WatchMetricsRequest& request);

}  // namespace trainyard::rpc
