// Streams that miss the same message at once each make it, so that no stream waits for another.
#include "server/rpc/job_messages.h"

#include <utility>

#include "server/rpc/convert.h"
#include "server/rpc/remarks.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::rpc {

JobMessages::Text JobMessages::Of(const Services& services,
                                  const std::shared_ptr<const runtime::JobView>& view) {
  auto remarks = RemarksOn(services.remarks, view->record);
  const int64_t job = view->record.id.value;
  {
    const absl::MutexLock lock(&mutex_);
    const auto found = kept_.find(job);
    if (found != kept_.end() && found->second.view == view && found->second.remarks == remarks) {
      return found->second.text;
    }
  }
  v1::WatchJobsResponse message;
  *message.mutable_job() = ShownJob(services, *view);
  auto text = std::make_shared<const std::string>(message.SerializeAsString());
  const absl::MutexLock lock(&mutex_);
  // Those that change often are soon back.
  if (kept_.size() >= jobs_max_ && !kept_.contains(job)) kept_.clear();
  kept_[job] = {view, std::move(remarks), text};
  return text;
}

}  // namespace trainyard::rpc
