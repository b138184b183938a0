// Implements CheckpointService, which lists checkpoints and streams their files.
#pragma once

#include "server/rpc/services.h"
#include "trainyard/v1/checkpoint.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class CheckpointServiceImpl : public v1::CheckpointService::CallbackService {
 public:
  explicit CheckpointServiceImpl(Services& services) : services_(services) {}

  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const v1::ListCheckpointsRequest* request,
                                            v1::ListCheckpointsResponse* response) override;
  grpc::ServerUnaryReactor* GetCheckpoint(grpc::CallbackServerContext* context,
                                          const v1::GetCheckpointRequest* request,
                                          v1::Checkpoint* response) override;
  grpc::ServerWriteReactor<v1::DownloadCheckpointResponse>* DownloadCheckpoint(
      grpc::CallbackServerContext* context, const v1::DownloadCheckpointRequest* request) override;
  grpc::ServerUnaryReactor* VerifyCheckpoint(grpc::CallbackServerContext* context,
                                             const v1::VerifyCheckpointRequest* request,
                                             v1::Checkpoint* response) override;

 private:
  Services& services_;
};

}  // namespace trainyard::rpc
