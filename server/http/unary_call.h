// Makes calls that have one answer.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "server/http/exchange.h"
#include "server/http/rpc_methods.h"

namespace trainyard::http {

using MessagePtr = std::unique_ptr<google::protobuf::Message>;

// Makes a call as the client of the exchange. `done` is called once, on a thread of gRPC. If the
// client goes away, the call is cancelled.
void CallUnary(const RpcMethod& method, const google::protobuf::Message& request,
               const ExchangePtr& exchange, std::function<void(absl::StatusOr<MessagePtr>)> done);

// Serves a request for such a call.
void ServeUnary(const RpcMethod& method, const ExchangePtr& exchange);

}  // namespace trainyard::http
