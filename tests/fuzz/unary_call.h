// Calls handlers of unary methods without a transport.
#pragma once

#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "common/base/check.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/test/default_reactor_test_peer.h"
#include "server/access/caller.h"

namespace trainyard::fuzz {

// A call that takes longer is stuck.
inline constexpr absl::Duration kCallMax = absl::Seconds(30);

template <typename Service, typename Request, typename Response>
using UnaryHandler = grpc::ServerUnaryReactor* (Service::*)(const access::Caller&,
                                                            grpc::CallbackServerContext*,
                                                            const Request*, Response*);

// Returns a caller who may do everything. Handlers run once a call is admitted.
inline access::Caller Admin() {
  access::Caller caller;
  caller.user = "operator";
  caller.role = access::Role::kAdmin;
  caller.is_host = true;
  return caller;
}

// Calls a handler and waits for its answer.
template <typename Service, typename Request, typename Response>
grpc::Status CallHandler(Service& service, UnaryHandler<Service, Request, Response> handler,
                         const Request& request, Response& response) {
  grpc::CallbackServerContext context;
  absl::Notification finished;
  const grpc::testing::DefaultReactorTestPeer peer(&context,
                                                   [&](const grpc::Status&) { finished.Notify(); });
  (service.*handler)(Admin(), &context, &request, &response);
  TY_CHECK(finished.WaitForNotificationWithTimeout(kCallMax));
  // The peer notes the status after it has called us, and must live until then.
  while (!peer.test_status_set()) std::this_thread::yield();
  return peer.test_status();
}

}  // namespace trainyard::fuzz
