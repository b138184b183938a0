// Streams that miss the same message at once each make it, so that no stream waits for another.
#include "server/rpc/job_messages.h"

#include <utility>

#include "common/rpc/deterministic.h"
#include "server/rpc/remarks.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::rpc {

JobMessages::Text JobMessages::Of(const Services& services,
                                  const std::shared_ptr<const runtime::JobView>& view) {
  auto remarks = RemarksOn(services.remarks, view->record);
  const int64_t job = view->record.id.value;
  const auto kept = kept_.Find(job);
  if (kept.has_value() && kept->view == view && kept->remarks == remarks) return kept->text;
  v1::WatchJobsResponse message;
  *message.mutable_job() = ShownJob(*view, remarks.get());
  auto text = std::make_shared<const std::string>(DeterministicBytes(message));
  kept_.Put(job, {view, std::move(remarks), text}, text->size());
  return text;
}

}  // namespace trainyard::rpc
