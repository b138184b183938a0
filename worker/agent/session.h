// The session with the server, shared by all who call it: the link makes it, the uploaders use it
// and say when the server no longer knows it.
#pragma once

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace trainyard::agent {

// Thread-safe.
class Session {
 public:
  // Empty while there is none.
  std::string Get() const {
    absl::MutexLock lock(&mutex_);
    return id_;
  }
  void Set(std::string id) {
    absl::MutexLock lock(&mutex_);
    id_ = std::move(id);
  }
  // Forgets `id` unless another session has taken its place already.
  void Forget(const std::string& id) {
    absl::MutexLock lock(&mutex_);
    if (id_ == id) id_.clear();
  }

 private:
  mutable absl::Mutex mutex_;
  std::string id_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::agent
