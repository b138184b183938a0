// Implements FleetService, which shows workers and changes how they are used.
#pragma once

#include <string>

#include "server/rpc/gate.h"
#include "server/rpc/services.h"
#include "trainyard/v1/fleet.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class FleetServiceImpl : public v1::FleetService::CallbackService {
 public:
  explicit FleetServiceImpl(Services& services);

  TY_UNARY_RPC(FleetService, ListWorkers, ListWorkersRequest, ListWorkersResponse);
  TY_UNARY_RPC(FleetService, GetWorker, GetWorkerRequest, Worker);
  TY_UNARY_RPC(FleetService, CordonWorker, CordonWorkerRequest, Worker);
  TY_UNARY_RPC(FleetService, UncordonWorker, UncordonWorkerRequest, Worker);
  TY_UNARY_RPC(FleetService, DrainWorker, DrainWorkerRequest, Worker);
  TY_UNARY_RPC(FleetService, DeleteWorker, DeleteWorkerRequest, DeleteWorkerResponse);
  TY_UNARY_RPC(FleetService, DeclareWorkerLost, DeclareWorkerLostRequest, Worker);
  TY_UNARY_RPC(FleetService, QuarantineDevice, QuarantineDeviceRequest, Worker);
  TY_UNARY_RPC(FleetService, ReleaseDevice, ReleaseDeviceRequest, Worker);

 private:
  // Answers with the worker as the yard has it.
  void FinishWithWorker(grpc::ServerUnaryReactor* reactor, const std::string& worker,
                        v1::Worker* response);
  grpc::ServerUnaryReactor* PostVerb(grpc::CallbackServerContext* context, core::Input input,
                                     const std::string& worker, v1::Worker* response);

  Services& services_;
};

}  // namespace trainyard::rpc
