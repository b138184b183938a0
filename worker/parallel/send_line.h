// Sends to one neighbour in a pipeline, on a thread of its own, so that the stage can continue to
// compute.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "worker/parallel/communicator.h"

namespace trainyard::parallel {

// Only one thread may call it. It borrows the communicator, which must not be used otherwise in the
// meantime. At most as many sends wait as there are microbatches in a step.
class SendLine {
 public:
  SendLine(Communicator& communicator, int peer);
  SendLine(const SendLine&) = delete;
  SendLine& operator=(const SendLine&) = delete;
  // Waits for the send that is under way, and drops those after it.
  ~SendLine();

  // Returns the number of the send, counted from 1. `values` must not change before WaitFor of it.
  // If `written` is not null, the line's thread calls it first, and sends when it has returned OK.
  int64_t Send(absl::Span<const float> values, std::function<absl::Status()> written = nullptr)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until sends up to this number have left. Returns the first error of the line.
  absl::Status WaitFor(int64_t number) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status WaitForAll() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Message {
    absl::Span<const float> values;
    std::function<absl::Status()> written;
  };

  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  Communicator& communicator_;
  const int peer_;
  absl::Mutex mutex_;
  std::deque<Message> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t given_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t sent_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace trainyard::parallel
