// The reactor owns itself until gRPC is done with it.
#include "server/http/stream_call.h"

#include <atomic>
#include <utility>

#include "common/rpc/status.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/client_callback.h"
#include "server/http/rpc_call.h"

namespace trainyard::http {
namespace {

class Reactor : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                public StreamCall,
                public std::enable_shared_from_this<Reactor> {
 public:
  explicit Reactor(StreamEvents events) : events_(std::move(events)) {}

  void Begin(const RpcMethod& method, const google::protobuf::Message& request,
             const std::shared_ptr<grpc::Channel>& channel) {
    self_ = shared_from_this();
    request_ = ToBuffer(request);
    channel_ = channel;
    grpc::GenericStub stub(channel_);
    stub.PrepareBidiStreamingCall(&context_, method.path, grpc::StubOptions(), this);
    // The hold lets reads be started outside of the reactor's own events.
    AddHold();
    StartWriteLast(&request_, grpc::WriteOptions());
    StartCall();
  }

  void Next() override {
    if (!has_ended_) StartRead(&response_);
  }
  void Cancel() override { context_.TryCancel(); }
  grpc::ClientContext& context() { return context_; }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) {
      has_ended_ = true;
      RemoveHold();
      return;
    }
    grpc::ByteBuffer message;
    message.Swap(&response_);
    events_.on_message(message);
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<Reactor> self = std::move(self_);
    const StreamEvents events = std::move(events_);
    events.on_end(rpc::FromGrpcStatus(status));
  }

  StreamEvents events_;
  std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  std::atomic<bool> has_ended_ = false;
  std::shared_ptr<Reactor> self_;  // until OnDone
};

}  // namespace

std::shared_ptr<StreamCall> StartStreamCall(const RpcMethod& method,
                                            const google::protobuf::Message& request,
                                            const ExchangePtr& exchange, StreamEvents events) {
  auto reactor = std::make_shared<Reactor>(events);
  absl::Status status = FillContext(exchange->request(), reactor->context());
  const std::shared_ptr<grpc::Channel> channel = exchange->channel();
  if (status.ok() && channel == nullptr) status = NoChannel();
  if (!status.ok()) {
    events.on_end(status);
    return nullptr;
  }
  reactor->Begin(method, request, channel);
  return reactor;
}

}  // namespace trainyard::http
