// An event for which threads of a test wait.
#pragma once

#include "common/base/mutex.h"

namespace trainyard::testing {

class Flag {
 public:
  void Raise() {
    const MutexLock lock(&mutex_);
    is_raised_ = true;
    changed_.SignalAll();
  }
  void Await() {
    const MutexLock lock(&mutex_);
    while (!is_raised_) changed_.Wait(&mutex_);
  }
  bool is_raised() {
    const MutexLock lock(&mutex_);
    return is_raised_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool is_raised_ = false;
};

}  // namespace trainyard::testing
