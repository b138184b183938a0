// Runs callbacks without the lock, since they may subscribe or end a subscription themselves.
#include "server/runtime/notifier.h"

#include <utility>
#include <vector>

namespace trainyard::runtime {

Notifier::Subscription::~Subscription() {
  const MutexLock lock(&notifier_->mutex_);
  const auto list = notifier_->entries_.find({job_, topics_});
  list->second.erase(entry_);
  if (list->second.empty()) notifier_->entries_.erase(list);
}

std::unique_ptr<Notifier::Subscription> Notifier::Subscribe(std::optional<JobId> job, int topics,
                                                            Callback callback) {
  auto subscription = std::make_unique<Subscription>();
  const MutexLock lock(&mutex_);
  auto& list = entries_[{job, topics}];
  subscription->notifier_ = this;
  subscription->job_ = job;
  subscription->topics_ = topics;
  subscription->entry_ =
      list.insert(list.end(), std::make_shared<const Callback>(std::move(callback)));
  return subscription;
}

void Notifier::Notify(JobId job, Topic topic) {
  std::vector<std::shared_ptr<const Callback>> callbacks;
  {
    const MutexLock lock(&mutex_);
    // Keys without a job come first, then those of each job, so two short ranges are enough.
    const auto collect = [&](const std::optional<JobId>& wanted) {
      for (auto it = entries_.lower_bound({wanted, 0});
           it != entries_.end() && it->first.job == wanted; ++it) {
        if ((it->first.topics & topic) == 0) continue;
        callbacks.insert(callbacks.end(), it->second.begin(), it->second.end());
      }
    };
    collect(std::nullopt);
    collect(job);
  }
  for (const auto& callback : callbacks) (*callback)(job);
}

}  // namespace trainyard::runtime
