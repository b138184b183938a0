// Lets a call with the token of a pod wait until the cluster has looked at the token.
#pragma once

#include <memory>

#include "grpcpp/support/server_interceptor.h"
#include "server/rpc/services.h"

namespace trainyard::rpc {

// Makes what holds calls back while their tokens are reviewed. Handlers come after it, and find the
// answer at once, so that none of gRPC's few threads waits for a cluster. `services` outlive it.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> PodSignIn(
    Services& services);

}  // namespace trainyard::rpc
