// Writes jobs as messages once for all who watch them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "server/rpc/services.h"
#include "server/runtime/board.h"
#include "server/store/sqlite/remark_store.h"

namespace trainyard::rpc {

// A change of a job goes to everybody who watches it, and making the message costs more than the
// rest of sending it. Messages that were made are kept for the jobs that change. The class is
// thread-safe.
class JobMessages {
 public:
  using Text = std::shared_ptr<const std::string>;

  // Keeps the messages of at most `jobs_max` jobs.
  explicit JobMessages(size_t jobs_max = 1000) : jobs_max_(jobs_max) {}

  // Returns the bytes of a WatchJobsResponse that has nothing but the job, as ShownJob shows it.
  Text Of(const Services& services, const std::shared_ptr<const runtime::JobView>& view);

 private:
  // A view and remarks do not change, so a message is right as long as they are the newest ones.
  struct Kept {
    std::shared_ptr<const runtime::JobView> view;
    std::shared_ptr<const store::Remarks> remarks;
    Text text;
  };

  const size_t jobs_max_;
  absl::Mutex mutex_;
  absl::flat_hash_map<int64_t, Kept> kept_ ABSL_GUARDED_BY(mutex_);  // by the number of the job
};

}  // namespace trainyard::rpc
