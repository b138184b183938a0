// Each thread takes the next number until there is none, or until one call has failed.
#include "common/base/in_parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/mutex.h"

namespace trainyard {

absl::Status InParallel(size_t count, size_t parallel,
                        const std::function<absl::Status(size_t)>& function) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> has_failed = false;
  Mutex mutex;
  absl::Status failure;
  const auto work = [&] {
    while (!has_failed) {
      const size_t i = next++;
      if (i >= count) return;
      absl::Status status = function(i);
      if (status.ok()) continue;
      has_failed = true;
      const MutexLock lock(&mutex);
      if (failure.ok()) failure = std::move(status);
    }
  };
  const size_t wanted = std::min(std::max<size_t>(parallel, 1), count);
  std::vector<std::thread> threads;
  threads.reserve(wanted);
  for (size_t i = 0; i < wanted; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return failure;
}

}  // namespace trainyard
