// An object for each call holds what gRPC needs until the call is done.
#include "server/http/unary_call.h"

#include <memory>
#include <utility>

#include "common/rpc/status.h"
#include "grpcpp/generic/generic_stub.h"
#include "server/http/connect_error.h"
#include "server/http/json.h"
#include "server/http/rpc_call.h"

namespace trainyard::http {
namespace {

struct UnaryCall {
  grpc::ClientContext context;
  grpc::ByteBuffer request;
  grpc::ByteBuffer response;
};

}  // namespace

void CallUnary(const RpcMethod& method, const google::protobuf::Message& request,
               const ExchangePtr& exchange, std::function<void(absl::StatusOr<MessagePtr>)> done) {
  const auto call = std::make_shared<UnaryCall>();
  if (const absl::Status status = FillContext(exchange->request(), call->context); !status.ok()) {
    return done(status);
  }
  const std::shared_ptr<grpc::Channel> channel = exchange->channel();
  if (channel == nullptr) return done(NoChannel());
  call->request = ToBuffer(request);
  exchange->OnGone([weak = std::weak_ptr<UnaryCall>(call)] {
    if (const auto open = weak.lock()) open->context.TryCancel();
  });
  grpc::GenericStub stub(channel);
  stub.UnaryCall(&call->context, method.path, grpc::StubOptions(), &call->request, &call->response,
                 [call, exchange, type = method.descriptor->output_type(),
                  done = std::move(done)](const grpc::Status& status) {
                   if (!status.ok()) return done(rpc::FromGrpcStatus(status));
                   MessagePtr message = NewMessage(*type);
                   const absl::Status parsed = FromBuffer(call->response, *message);
                   if (!parsed.ok()) return done(parsed);
                   done(std::move(message));
                 });
}

void ServeUnary(const RpcMethod& method, const ExchangePtr& exchange) {
  const MessagePtr request = ReadMessage(method, exchange);
  if (request == nullptr) return;
  CallUnary(method, *request, exchange, [exchange](const absl::StatusOr<MessagePtr>& answer) {
    if (!answer.ok()) return exchange->Answer(ErrorResponse(answer.status()));
    absl::StatusOr<std::string> json = ToJson(**answer);
    if (!json.ok()) return exchange->Answer(ErrorResponse(json.status()));
    Response response;
    response.body = *std::move(json);
    exchange->Answer(std::move(response));
  });
}

}  // namespace trainyard::http
