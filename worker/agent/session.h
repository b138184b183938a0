// Shares the session with the server between its users: the link makes it, the uploaders use it and
// report when the server no longer knows it.
#pragma once

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace trainyard::agent {

// The session. The class is thread-safe.
class Session {
 public:
  // Returns the session, or an empty text while there is none.
  std::string Get() const {
    absl::MutexLock lock(&mutex_);
    return id_;
  }
  void Set(std::string id) {
    absl::MutexLock lock(&mutex_);
    id_ = std::move(id);
  }
  // Forgets `id`, unless another session has replaced it already.
  void Forget(const std::string& id) {
    absl::MutexLock lock(&mutex_);
    if (id_ == id) id_.clear();
  }

 private:
  mutable absl::Mutex mutex_;
  std::string id_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::agent
