// Wakes the streams that wait for something of a job.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "common/base/ids.h"
#include "common/base/mutex.h"

namespace trainyard::runtime {

// The kinds of news; a subscription names several with |.
enum Topic : int {
  kJobChanged = 1,
  kLogGrew = 2,
  kMetricsGrew = 4,
};

// Thread-safe. Outlives its subscriptions.
class Notifier {
 public:
  using Callback = std::function<void(JobId job)>;

  // Unsubscribes when destroyed. A call that has begun by then may still come.
  class Subscription {
   public:
    ~Subscription();

   private:
    friend class Notifier;
    Notifier* notifier_ = nullptr;
    std::optional<JobId> job_;
    std::list<std::shared_ptr<const Callback>>::iterator entry_;
    int topics_ = 0;
  };

  // All jobs where `job` is empty. The callback is quick, never blocks, and runs on whatever thread
  // brings the news.
  std::unique_ptr<Subscription> Subscribe(std::optional<JobId> job, int topics, Callback callback);
  void Notify(JobId job, Topic topic);

 private:
  struct Key {
    std::optional<JobId> job;
    int topics;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  Mutex mutex_;
  std::map<Key, std::list<std::shared_ptr<const Callback>>> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::runtime
