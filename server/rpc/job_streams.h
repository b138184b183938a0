// Implements the streams of JobService: jobs, logs and metrics as they come.
#pragma once

#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/access/caller.h"
#include "server/rpc/job_messages.h"
#include "server/rpc/services.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::rpc {

// Streams the jobs that the caller may see, in ascending order of revision: first those that exist,
// then those that change. A slow watcher gets only the newest state of each job. The bytes are
// those of WatchJobsResponse. `messages`, which outlives the stream, is shared by all of them.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartWatchJobs(Services& services,
                                                           JobMessages& messages,
                                                           const access::Caller& caller,
                                                           const v1::WatchJobsRequest& request);

// Streams bytes of the ranks' logs. When it follows a job, it continues with the job's next
// attempt, from the first byte, and ends when the job has ended and everything was sent.
grpc::ServerWriteReactor<v1::TailLogsResponse>* StartTailLogs(Services& services,
                                                              const access::Caller& caller,
                                                              const v1::TailLogsRequest& request);

// Streams points in order of arrival. It ends as StartTailLogs does.
grpc::ServerWriteReactor<v1::WatchMetricsResponse>* StartWatchMetrics(
    Services& services, const access::Caller& caller, const v1::WatchMetricsRequest& request);

}  // namespace trainyard::rpc
