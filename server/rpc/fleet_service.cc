// Shows workers and changes how they are used.
#include "server/rpc/fleet_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/status.h"
#include "common/spec/interval.h"
#include "server/rpc/answers.h"
#include "server/rpc/convert.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"
#include "server/rpc/revoke_certificate.h"

namespace trainyard::rpc {

FleetServiceImpl::FleetServiceImpl(Services& services) : services_(services) {}

grpc::ServerUnaryReactor* FleetServiceImpl::ListWorkers(const access::Caller&,
                                                        grpc::CallbackServerContext* context,
                                                        const v1::ListWorkersRequest*,
                                                        v1::ListWorkersResponse* response) {
  return FinishFromYard(context, services_, [response](const core::Yard& yard) {
    for (const auto& [name, worker] : yard.snapshot().workers) {
      *response->add_workers() = ToProto(worker, yard);
    }
    return absl::OkStatus();
  });
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

grpc::ServerUnaryReactor* FleetServiceImpl::GetWorker(const access::Caller&,
                                                      grpc::CallbackServerContext* context,
                                                      const v1::GetWorkerRequest* request,
                                                      v1::Worker* response) {
  RequestCheck check;
  const std::string worker = check.Worker("name", request->name());
  if (!check.ok()) return Refused(context, check);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  FinishWithWorker(reactor, worker, response);
  return reactor;
}

grpc::ServerUnaryReactor* FleetServiceImpl::PostVerb(grpc::CallbackServerContext* context,
                                                     core::Input input, const std::string& worker,
                                                     v1::Worker* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto done = [this, reactor, worker, response](const absl::StatusOr<core::Reply>& reply) {
    if (reply.ok()) {
      FinishWithWorker(reactor, worker, response);
    } else {
      reactor->Finish(ToGrpcStatus(reply.status()));
    }
  };
  services_.runtime.Post(std::move(input), done);
  return reactor;
}

grpc::ServerUnaryReactor* FleetServiceImpl::CordonWorker(const access::Caller& caller,
                                                         grpc::CallbackServerContext* context,
                                                         const v1::CordonWorkerRequest* request,
                                                         v1::Worker* response) {
  RequestCheck check;
  const std::string worker = check.Worker("name", request->name());
  check.MaxBytes("reason", request->reason(), kReasonBytesMax);
  if (!check.ok()) return Refused(context, check);
  return PostVerb(context, core::CordonWorker{worker, UserActor(caller.user), request->reason()},
                  worker, response);
}

grpc::ServerUnaryReactor* FleetServiceImpl::UncordonWorker(const access::Caller& caller,
                                                           grpc::CallbackServerContext* context,
                                                           const v1::UncordonWorkerRequest* request,
                                                           v1::Worker* response) {
  RequestCheck check;
  const std::string worker = check.Worker("name", request->name());
  if (!check.ok()) return Refused(context, check);
  return PostVerb(context, core::UncordonWorker{worker, UserActor(caller.user)}, worker, response);
}

grpc::ServerUnaryReactor* FleetServiceImpl::DrainWorker(const access::Caller& caller,
                                                        grpc::CallbackServerContext* context,
                                                        const v1::DrainWorkerRequest* request,
                                                        v1::Worker* response) {
  RequestCheck check;
  const std::string worker = check.Worker("name", request->name());
  check.MaxBytes("reason", request->reason(), kReasonBytesMax);
  const int64_t within_us = absl::ToInt64Microseconds(spec::FromProto(request->within()));
  if (within_us < 0 || within_us > kDrainWithinMaxUs) {
    check.Add("within", absl::StrCat(spec::PlainDurationText(spec::FromProto(request->within())),
                                     " is not accepted; expected at most 24 h"));
  }
  if (!check.ok()) return Refused(context, check);
  return PostVerb(context,
                  core::DrainWorker{worker, UserActor(caller.user), request->reason(), within_us},
                  worker, response);
}

grpc::ServerUnaryReactor* FleetServiceImpl::DeclareWorkerLost(
    const access::Caller& caller, grpc::CallbackServerContext* context,
    const v1::DeclareWorkerLostRequest* request, v1::Worker* response) {
  RequestCheck check;
  const std::string worker = check.Worker("name", request->name());
  check.MaxBytes("reason", request->reason(), kReasonBytesMax);
  if (!check.ok()) return Refused(context, check);
  return PostVerb(context,
                  core::DeclareWorkerLost{worker, UserActor(caller.user), request->reason()},
                  worker, response);
}

grpc::ServerUnaryReactor* FleetServiceImpl::DeleteWorker(const access::Caller& caller,
                                                         grpc::CallbackServerContext* context,
                                                         const v1::DeleteWorkerRequest* request,
                                                         v1::DeleteWorkerResponse*) {
  RequestCheck check;
  const std::string worker = check.Worker("name", request->name());
  check.MaxBytes("reason", request->reason(), kReasonBytesMax);
  if (!check.ok()) return Refused(context, check);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const core::DeleteWorker input{worker, UserActor(caller.user), request->reason()};
  // The certificates end before the worker is forgotten, so that no crash in between leaves a
  // worker that nobody can remove any more.
  const auto remove = [this, reactor, input] {
    const absl::Status revoked = RevokeCertificates(services_, input.worker);
    if (!revoked.ok()) return reactor->Finish(ToGrpcStatus(revoked));
    services_.runtime.Post(input, [reactor](const absl::StatusOr<core::Reply>& reply) {
      reactor->Finish(ToGrpcStatus(reply.status()));
    });
  };
  services_.runtime.Read([this, reactor, worker, remove](absl::StatusOr<const core::Yard*> yard) {
    absl::Status status = yard.ok() ? (*yard)->CheckDeletion(worker) : yard.status();
    if (status.ok()) status = services_.executor.TryPost(remove);
    if (!status.ok()) reactor->Finish(ToGrpcStatus(status));
  });
  return reactor;
}

grpc::ServerUnaryReactor* FleetServiceImpl::QuarantineDevice(
    const access::Caller& caller, grpc::CallbackServerContext* context,
    const v1::QuarantineDeviceRequest* request, v1::Worker* response) {
  RequestCheck check;
  const std::string worker = check.Worker("worker", request->worker());
  check.NotEmpty("device", request->device());
  check.MaxBytes("device", request->device(), kNameBytesMax);
  check.MaxBytes("reason", request->reason(), kReasonBytesMax);
  if (!check.ok()) return Refused(context, check);
  return PostVerb(
      context,
      core::QuarantineDevice{worker, request->device(), UserActor(caller.user), request->reason()},
      worker, response);
}

grpc::ServerUnaryReactor* FleetServiceImpl::ReleaseDevice(const access::Caller& caller,
                                                          grpc::CallbackServerContext* context,
                                                          const v1::ReleaseDeviceRequest* request,
                                                          v1::Worker* response) {
  RequestCheck check;
  const std::string worker = check.Worker("worker", request->worker());
  check.NotEmpty("device", request->device());
  check.MaxBytes("device", request->device(), kNameBytesMax);
  if (!check.ok()) return Refused(context, check);
  return PostVerb(context, core::ReleaseDevice{worker, request->device(), UserActor(caller.user)},
                  worker, response);
}

}  // namespace trainyard::rpc
