#include "server/rpc/fleet_service.h"

#include <utility>

#include "common/rpc/status.h"
#include "server/rpc/convert.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {

grpc::ServerUnaryReactor* FleetServiceImpl::ListWorkers(grpc::CallbackServerContext* context,
                                                        const v1::ListWorkersRequest*,
                                                        v1::ListWorkersResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  services_.runtime.Read([reactor, response](absl::StatusOr<const core::Yard*> yard) {
    if (yard.ok()) {
      for (const auto& [name, worker] : (*yard)->snapshot().workers) {
        *response->add_workers() = ToProto(worker, **yard);
      }
    }
    reactor->Finish(ToGrpcStatus(yard.status()));
  });
  return reactor;
}

void FleetServiceImpl::FinishWithWorker(grpc::ServerUnaryReactor* reactor,
                                        const std::string& worker, v1::Worker* response) {
  services_.runtime.Read([reactor, worker, response](absl::StatusOr<const core::Yard*> yard) {
    absl::Status status = yard.status();
    if (yard.ok()) {
      const core::WorkerRecord* record = (*yard)->FindWorker(worker);
      if (record == nullptr) {
        status = error::WorkerNotFound(WorkerName(worker));
      } else {
        *response = ToProto(*record, **yard);
      }
    }
    reactor->Finish(ToGrpcStatus(status));
  });
}

grpc::ServerUnaryReactor* FleetServiceImpl::GetWorker(grpc::CallbackServerContext* context,
                                                      const v1::GetWorkerRequest* request,
                                                      v1::Worker* response) {
  RequestCheck check;
  const std::string worker = check.Worker("name", request->name());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (!check.ok()) {
    reactor->Finish(ToGrpcStatus(check.Take()));
  } else {
    FinishWithWorker(reactor, worker, response);
  }
  return reactor;
}

grpc::ServerUnaryReactor* FleetServiceImpl::PostVerb(grpc::CallbackServerContext* context,
                                                     core::Input input, const std::string& worker,
                                                     v1::Worker* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  services_.runtime.Post(std::move(input),
                         [this, reactor, worker, response](absl::StatusOr<core::Reply> reply) {
                           if (reply.ok()) {
                             FinishWithWorker(reactor, worker, response);
                           } else {
                             reactor->Finish(ToGrpcStatus(reply.status()));
                           }
                         });
  return reactor;
}

grpc::ServerUnaryReactor* FleetServiceImpl::CordonWorker(grpc::CallbackServerContext* context,
                                                         const v1::CordonWorkerRequest* request,
                                                         v1::Worker* response) {
  RequestCheck check;
  const std::string worker = check.Worker("name", request->name());
  check.MaxBytes("reason", request->reason(), kReasonBytesMax);
  const std::string user = UserOf(*context, services_, check);
  if (!check.ok()) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(check.Take()));
    return reactor;
  }
  return PostVerb(context, core::CordonWorker{worker, UserActor(user), request->reason()}, worker,
                  response);
}

grpc::ServerUnaryReactor* FleetServiceImpl::UncordonWorker(grpc::CallbackServerContext* context,
                                                           const v1::UncordonWorkerRequest* request,
                                                           v1::Worker* response) {
  RequestCheck check;
  const std::string worker = check.Worker("name", request->name());
  const std::string user = UserOf(*context, services_, check);
  if (!check.ok()) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(check.Take()));
    return reactor;
  }
  return PostVerb(context, core::UncordonWorker{worker, UserActor(user)}, worker, response);
}

}  // namespace trainyard::rpc
