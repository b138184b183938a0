// Has a checkpoint's files hashed, for users who doubt them and for workers that got other bytes.
#pragma once

#include "grpcpp/support/server_callback.h"
#include "server/rpc/services.h"
#include "trainyard/v1/checkpoint.pb.h"

namespace trainyard::rpc {

// Fills in `response` once the files are hashed. Returns NOT_FOUND if there is no such checkpoint.
grpc::ServerUnaryReactor* StartVerification(grpc::CallbackServerContext* context,
                                            Services& services,
                                            const v1::VerifyCheckpointRequest& request,
                                            v1::Checkpoint* response);

}  // namespace trainyard::rpc
