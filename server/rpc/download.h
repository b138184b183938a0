// Streams the bytes of a checkpoint's file from an offset, for users and for attempts that start
// from it.
#pragma once

#include "grpcpp/support/server_callback.h"
#include "server/rpc/services.h"
#include "server/rpc/streams.h"
#include "trainyard/v1/checkpoint.pb.h"

namespace trainyard::rpc {

// Streams to `owner`. Returns NOT_FOUND if the checkpoint or the file does not exist,
// and OUT_OF_RANGE for an offset past the end of the file.
grpc::ServerWriteReactor<v1::DownloadCheckpointResponse>* StartDownload(
    Services& services, const StreamOwner& owner, const v1::DownloadCheckpointRequest& request);
// Streams a file of the job's outputs, in the same way. Returns FAILED_PRECONDITION
// (OUTPUTS_REPLACED) if they are not those of the attempt that the request names.
grpc::ServerWriteReactor<v1::DownloadCheckpointResponse>* StartOutputDownload(
    Services& services, const StreamOwner& owner, const v1::DownloadOutputRequest& request);

}  // namespace trainyard::rpc
