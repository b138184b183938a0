// Uses gRPC's generic service and stub, which take any call as bytes.
#include "tests/faults/replaying_proxy.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

// The calls that may come again: some seconds of a worker that trains.
constexpr size_t kKeptMax = 256;
// A copy that the server holds, such as a sync, ends after this time.
constexpr absl::Duration kCopyTimeout = absl::Seconds(10);

std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  auto channel = rpc::MakeChannel(address);
  TY_CHECK_OK(channel.status());
  return *std::move(channel);
}

}  // namespace

// A call of the worker on its way to the server, and the answer on its way back.
class ReplayingProxy::Forwarded final : public grpc::ServerGenericBidiReactor {
 public:
  Forwarded(ReplayingProxy& proxy, const grpc::GenericCallbackServerContext& context)
      : proxy_(proxy) {
    message_.method = context.method();
    upstream_.set_deadline(context.deadline());
    StartRead(&message_.bytes);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the call has no message"));
      return;
    }
    proxy_.MakeNoise(message_);
    proxy_.stub_.UnaryCall(&upstream_, message_.method, {}, &message_.bytes, &response_,
                           [this](const grpc::Status& status) {
                             if (status.ok()) {
                               StartWriteAndFinish(&response_, grpc::WriteOptions(), status);
                             } else {
                               Finish(status);
                             }
                           });
  }
  void OnCancel() override { upstream_.TryCancel(); }
  void OnDone() override { delete this; }

 private:
  ReplayingProxy& proxy_;
  Message message_;
  grpc::ClientContext upstream_;
  grpc::ByteBuffer response_;
};

ReplayingProxy::ReplayingProxy(const std::string& listen, const std::string& server, uint64_t seed)
    : stub_(Connect(server)), draws_(seed) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials());
  builder.RegisterCallbackGenericService(this);
  server_ = builder.BuildAndStart();
  TY_CHECK(server_ != nullptr);
}

ReplayingProxy::~ReplayingProxy() {
  server_->Shutdown(gpr_inf_past(GPR_CLOCK_REALTIME));
  server_->Wait();
  TY_CHECK(WaitUntil([this] {
    const absl::MutexLock lock(&mutex_);
    return copies_under_way_ == 0;
  }));
}

void ReplayingProxy::BeginNoise() {
  const absl::MutexLock lock(&mutex_);
  is_noisy_ = true;
}

ReplayingProxy::Counts ReplayingProxy::counts() const {
  const absl::MutexLock lock(&mutex_);
  return counts_;
}

grpc::ServerGenericBidiReactor* ReplayingProxy::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  return new Forwarded(*this, *context);
}

void ReplayingProxy::MakeNoise(const Message& message) {
  std::vector<Message> copies;
  {
    const absl::MutexLock lock(&mutex_);
    ++counts_.calls;
    if (kept_.size() < kKeptMax) {
      kept_.push_back(message);
    } else {
      kept_[draws_() % kKeptMax] = message;
    }
    if (!is_noisy_) return;
    if (draws_() % 2 == 0) {
      ++counts_.doubled;
      copies.push_back(message);
    }
    if (draws_() % 2 == 0) {
      ++counts_.replayed;
      copies.push_back(kept_[draws_() % kept_.size()]);
    }
    copies_under_way_ += static_cast<int64_t>(copies.size());
  }
  for (Message& copy : copies) SendCopy(std::move(copy));
}

void ReplayingProxy::SendCopy(Message message) {
  struct Copy {
    Message message;
    grpc::ClientContext context;
    grpc::ByteBuffer response;
  };
  auto* copy = new Copy{std::move(message), {}, {}};
  rpc::SetTimeout(copy->context, kCopyTimeout);
  stub_.UnaryCall(&copy->context, copy->message.method, {}, &copy->message.bytes, &copy->response,
                  [this, copy](const grpc::Status& status) {
                    delete copy;
                    const absl::MutexLock lock(&mutex_);
                    if (!status.ok()) ++counts_.refused[ErrorReason(rpc::FromGrpcStatus(status))];
                    --copies_under_way_;
                  });
}

}  // namespace trainyard::testing
