#include "server/rpc/checkpoint_service.h"

#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "server/rpc/convert.h"
#include "server/rpc/download.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {

grpc::ServerUnaryReactor* CheckpointServiceImpl::ListCheckpoints(
    grpc::CallbackServerContext* context, const v1::ListCheckpointsRequest* request,
    v1::ListCheckpointsResponse* response) {
  const auto list = [&]() -> absl::Status {
    RequestCheck check;
    const JobId job = check.Job("parent", request->parent());
    TY_RETURN_IF_ERROR(check.Take());
    if (services_.board.FindJob(job) == nullptr) return error::JobNotFound(request->parent());
    for (const auto& checkpoint : services_.board.CheckpointsOf(job)) {
      *response->add_checkpoints() = ToProto(*checkpoint);
    }
    return absl::OkStatus();
  };
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(list()));
  return reactor;
}

grpc::ServerUnaryReactor* CheckpointServiceImpl::GetCheckpoint(
    grpc::CallbackServerContext* context, const v1::GetCheckpointRequest* request,
    v1::Checkpoint* response) {
  const auto get = [&]() -> absl::Status {
    RequestCheck check;
    const CheckpointId id = check.Checkpoint("name", request->name());
    TY_RETURN_IF_ERROR(check.Take());
    const auto checkpoint = services_.board.FindCheckpoint({id.job, id.step});
    if (checkpoint == nullptr) return error::CheckpointNotFound(request->name());
    *response = ToProto(*checkpoint);
    return absl::OkStatus();
  };
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(get()));
  return reactor;
}

grpc::ServerWriteReactor<v1::DownloadCheckpointResponse>* CheckpointServiceImpl::DownloadCheckpoint(
    grpc::CallbackServerContext*, const v1::DownloadCheckpointRequest* request) {
  return StartDownload(services_, *request);
}

}  // namespace trainyard::rpc
