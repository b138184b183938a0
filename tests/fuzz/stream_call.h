// Calls handlers of streaming methods without a transport. What gRPC would call on threads of its
// own runs on an executor.
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "grpcpp/grpcpp.h"
#include "server/runtime/executor.h"
#include "tests/fuzz/unary_call.h"

namespace trainyard::fuzz {

// A stream is cancelled after so many messages, or when it has been silent for so long.
inline constexpr int kMessagesMax = 16;
inline constexpr absl::Duration kSilenceMax = absl::Milliseconds(2);

// The reading end of a server's stream.
template <typename Response>
class StreamCall : public grpc::ServerCallbackWriter<Response> {
 public:
  StreamCall(grpc::ServerWriteReactor<Response>* reactor, runtime::Executor& executor)
      : reactor_(reactor), executor_(executor) {
    this->BindReactor(reactor);
  }

  grpc::Status Wait() {
    if (!finished_.WaitForNotificationWithTimeout(kSilenceMax)) {
      executor_.Post([this] {
        if (!finished_.HasBeenNotified()) reactor_->OnCancel();
        cancelled_.Notify();
      });
      cancelled_.WaitForNotification();
    }
    TY_CHECK(finished_.WaitForNotificationWithTimeout(kCallMax));
    absl::Notification done;
    executor_.Post([this, &done] {
      reactor_->OnDone();
      done.Notify();
    });
    done.WaitForNotification();
    return status_;
  }

  void Finish(grpc::Status status) override {
    status_ = std::move(status);
    finished_.Notify();
  }
  void SendInitialMetadata() override {}
  void Write(const Response* /*message*/, grpc::WriteOptions /*options*/) override {
    const bool goes_on = ++messages_ < kMessagesMax;
    executor_.Post([this, goes_on] { reactor_->OnWriteDone(goes_on); });
  }
  void WriteAndFinish(const Response* /*message*/, grpc::WriteOptions /*options*/,
                      grpc::Status status) override {
    Finish(std::move(status));
  }

 private:
  grpc::internal::ServerReactor* reactor() override { return reactor_; }
  void CallOnDone() override {}

  grpc::ServerWriteReactor<Response>* const reactor_;
  runtime::Executor& executor_;
  int messages_ = 0;
  grpc::Status status_;
  absl::Notification finished_;
  absl::Notification cancelled_;
};

template <typename Service, typename Request, typename Response>
grpc::Status CallStreamHandler(
    Service& service,
    grpc::ServerWriteReactor<Response>* (Service::*handler)(const access::Caller&, const Request*),
    const Request& request, runtime::Executor& executor) {
  StreamCall<Response> call((service.*handler)(Admin(), &request), executor);
  return call.Wait();
}

}  // namespace trainyard::fuzz
