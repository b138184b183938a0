// Implements NotifyService: to whom word of the caller's jobs goes, and what became of it.
#pragma once

#include "server/rpc/gate.h"
#include "server/rpc/services.h"
#include "server/runtime/executor.h"
#include "trainyard/v1/notify.grpc.pb.h"

namespace trainyard::rpc {

// The service. It is thread-safe and borrows `services`.
class NotifyServiceImpl : public v1::NotifyService::CallbackService {
 public:
  explicit NotifyServiceImpl(Services& services);

  TY_UNARY_RPC(NotifyService, AddTarget, AddTargetRequest, AddTargetResponse);
  TY_UNARY_RPC(NotifyService, ListTargets, ListTargetsRequest, ListTargetsResponse);
  TY_UNARY_RPC(NotifyService, DeleteTarget, DeleteTargetRequest, DeleteTargetResponse);
  TY_UNARY_RPC(NotifyService, TestTarget, TestTargetRequest, Delivery);
  TY_UNARY_RPC(NotifyService, ListDeliveries, ListDeliveriesRequest, ListDeliveriesResponse);

 private:
  Services& services_;
  // One change after the other, so that limits hold.
  runtime::Executor changes_{1, 256};
  // Tests wait for receivers, so they have threads of their own, and few may wait.
  runtime::Executor tests_{2, 8};
};

}  // namespace trainyard::rpc
