// Implements CancelJobs, which gives one answer for many jobs.
#pragma once

#include "grpcpp/server_context.h"
#include "server/access/caller.h"
#include "server/rpc/request.h"
#include "server/rpc/services.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::rpc {

// Finishes the reactor when every job is cancelled, is stopping or cannot be cancelled, and all of
// that is on disk.
void StartCancelJobs(Services& services, const v1::CancelJobsRequest& request,
                     const access::Caller& caller, RequestCheck& check,
                     grpc::ServerUnaryReactor* reactor, v1::CancelJobsResponse* response);

}  // namespace trainyard::rpc
