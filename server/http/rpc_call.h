// The common part of unary calls and streams: they read the request, and they call the services as
// the client of HTTP would with gRPC.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/http/exchange.h"
#include "server/http/rpc_methods.h"

namespace trainyard::http {

// Reads the message of a request: the body of POST, or `message` of the query of GET. If the
// request is not acceptable as such, it is answered, and the result is null.
std::unique_ptr<google::protobuf::Message> ReadMessage(const RpcMethod& method,
                                                       const ExchangePtr& exchange);

// Takes over what says who calls and for whom: the token, and the user for whom an administrator
// acts. Nothing else of the request reaches the services. Sets the deadline of Connect-Timeout-Ms.
// Returns INVALID_ARGUMENT for a header that cannot be read.
absl::Status FillContext(const Request& request, grpc::ClientContext& context);

// Returns the error of a call for which there is no channel.
absl::Status NoChannel();

grpc::ByteBuffer ToBuffer(const google::protobuf::Message& message);
absl::Status FromBuffer(grpc::ByteBuffer& buffer, google::protobuf::Message& message);

}  // namespace trainyard::http
