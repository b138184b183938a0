// Implements CreateJobs, which takes many submissions over one stream.
#pragma once

#include "grpcpp/support/server_callback.h"
#include "server/access/caller.h"
#include "server/rpc/services.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::rpc {

// Handles a stream. Several messages are under way at a time, so that one commit takes the jobs of
// many; their answers leave in the order in which the messages came. While kCreateMessagesMax
// messages have no answer, the stream is not read.
grpc::ServerBidiReactor<v1::CreateJobsRequest, v1::CreateJobsResponse>* StartCreateJobs(
    Services& services, const access::Caller& caller);

// Returns a stream that ends at once.
grpc::ServerBidiReactor<v1::CreateJobsRequest, v1::CreateJobsResponse>* FailedCreateJobs(
    const absl::Status& status);

}  // namespace trainyard::rpc
