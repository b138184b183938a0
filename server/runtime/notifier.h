// Wakes the streams that wait for changes of a job.
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

// The notifier. It is thread-safe, and must outlive its subscriptions.
class Notifier {
 public:
  using Callback = std::function<void(JobId job)>;

  // Unsubscribes when destroyed. A callback that has begun by then may still run.
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

  // Subscribes to a job, or to all jobs if `job` is unset. The callback must be quick and never
  // block. It runs on whatever thread brings the news.
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
