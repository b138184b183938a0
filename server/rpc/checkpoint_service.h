// Implements CheckpointService, which lists checkpoints and streams their files.
#pragma once

#include "server/rpc/gate.h"
#include "server/rpc/services.h"
#include "trainyard/v1/checkpoint.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class CheckpointServiceImpl : public v1::CheckpointService::CallbackService {
 public:
  explicit CheckpointServiceImpl(Services& services);

  TY_UNARY_RPC(CheckpointService, ListCheckpoints, ListCheckpointsRequest, ListCheckpointsResponse);
  TY_UNARY_RPC(CheckpointService, GetCheckpoint, GetCheckpointRequest, Checkpoint);
  TY_STREAM_RPC(CheckpointService, DownloadCheckpoint, DownloadCheckpointRequest,
                DownloadCheckpointResponse);
  TY_UNARY_RPC(CheckpointService, VerifyCheckpoint, VerifyCheckpointRequest, Checkpoint);
  TY_UNARY_RPC(CheckpointService, GetOutputs, GetOutputsRequest, Outputs);
  TY_STREAM_RPC(CheckpointService, DownloadOutput, DownloadOutputRequest,
                DownloadCheckpointResponse);

 private:
  Services& services_;
};

}  // namespace trainyard::rpc
