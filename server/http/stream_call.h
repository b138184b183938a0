// Makes calls that answer with a stream of messages.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/http/exchange.h"
#include "server/http/rpc_methods.h"

namespace trainyard::http {

// One stream. Its functions may be called by any thread.
class StreamCall {
 public:
  virtual ~StreamCall() = default;
  // Asks for the next message. It is called once after the start, and once for each message.
  virtual void Next() = 0;
  virtual void Cancel() = 0;
};

struct StreamEvents {
  // The message lives until the function returns. The receiver calls Next when it can take one
  // more.
  std::function<void(grpc::ByteBuffer& message)> on_message;
  // Nothing follows.
  std::function<void(const absl::Status& status)> on_end;
};

// Starts a call as the client of the exchange. The events come on threads of gRPC, one at a time.
std::shared_ptr<StreamCall> StartStreamCall(const RpcMethod& method,
                                            const google::protobuf::Message& request,
                                            const ExchangePtr& exchange, StreamEvents events);

}  // namespace trainyard::http
