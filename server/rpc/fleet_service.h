// Implements FleetService, which shows workers and changes how they are used.
#pragma once

#include <string>

#include "server/rpc/services.h"
#include "trainyard/v1/fleet.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class FleetServiceImpl : public v1::FleetService::CallbackService {
 public:
  explicit FleetServiceImpl(Services& services) : services_(services) {}

  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override;
  grpc::ServerUnaryReactor* GetWorker(grpc::CallbackServerContext* context,
                                      const v1::GetWorkerRequest* request,
                                      v1::Worker* response) override;
  grpc::ServerUnaryReactor* CordonWorker(grpc::CallbackServerContext* context,
                                         const v1::CordonWorkerRequest* request,
                                         v1::Worker* response) override;
  grpc::ServerUnaryReactor* UncordonWorker(grpc::CallbackServerContext* context,
                                           const v1::UncordonWorkerRequest* request,
                                           v1::Worker* response) override;
  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context,
                                        const v1::DrainWorkerRequest* request,
                                        v1::Worker* response) override;
  grpc::ServerUnaryReactor* DeleteWorker(grpc::CallbackServerContext* context,
                                         const v1::DeleteWorkerRequest* request,
                                         v1::DeleteWorkerResponse* response) override;
  grpc::ServerUnaryReactor* DeclareWorkerLost(grpc::CallbackServerContext* context,
                                              const v1::DeclareWorkerLostRequest* request,
                                              v1::Worker* response) override;
  grpc::ServerUnaryReactor* QuarantineDevice(grpc::CallbackServerContext* context,
                                             const v1::QuarantineDeviceRequest* request,
                                             v1::Worker* response) override;
  grpc::ServerUnaryReactor* ReleaseDevice(grpc::CallbackServerContext* context,
                                          const v1::ReleaseDeviceRequest* request,
                                          v1::Worker* response) override;

 private:
  // Answers with the worker as the yard has it.
  void FinishWithWorker(grpc::ServerUnaryReactor* reactor, const std::string& worker,
                        v1::Worker* response);
  grpc::ServerUnaryReactor* PostVerb(grpc::CallbackServerContext* context, core::Input input,
                                     const std::string& worker, v1::Worker* response);

  Services& services_;
};

}  // namespace trainyard::rpc
