// Cancels a thread's calls from another thread.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/client_context.h"

namespace trainyard::agent {

// Cancels the calls of one thread, which makes one at a time. The class is thread-safe.
class CancelToken {
 public:
  // Cancels the call that is under way and every later one.
  void Cancel() {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    if (call_ != nullptr) call_->TryCancel();
  }
  bool cancelled() const {
    absl::MutexLock lock(&mutex_);
    return cancelled_;
  }

  // Makes `call` cancellable while the object lives.
  class Scope {
   public:
    Scope(CancelToken& token, grpc::ClientContext& call) : token_(token) { token_.SetCall(&call); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope() { token_.SetCall(nullptr); }

   private:
    CancelToken& token_;
  };

 private:
  void SetCall(grpc::ClientContext* call) {
    absl::MutexLock lock(&mutex_);
    call_ = call;
    if (cancelled_ && call_ != nullptr) call_->TryCancel();
  }

  mutable absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace trainyard::agent
