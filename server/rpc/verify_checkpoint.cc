// Passes the question to the verifier, and its answer back.
#include "server/rpc/verify_checkpoint.h"

#include <memory>

#include "common/rpc/status.h"
#include "server/rpc/answers.h"
#include "server/rpc/convert.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {

grpc::ServerUnaryReactor* StartVerification(grpc::CallbackServerContext* context,
                                            Services& services,
                                            const v1::VerifyCheckpointRequest& request,
                                            v1::Checkpoint* response) {
  RequestCheck check;
  const CheckpointId id = check.Checkpoint("name", request.name());
  if (!check.ok()) return Refused(context, check);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  services.verifier.Verify(
      {id.job, id.step},
      [reactor,
       response](const absl::StatusOr<std::shared_ptr<const core::CheckpointRecord>>& record) {
        if (record.ok()) *response = ToProto(**record);
        reactor->Finish(ToGrpcStatus(record.status()));
      });
  return reactor;
}

}  // namespace trainyard::rpc
