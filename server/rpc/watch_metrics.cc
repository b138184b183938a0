// Streams metric points as they arrive.
#include <string>
#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "server/rpc/convert.h"
#include "server/rpc/job_streams.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"
#include "server/rpc/streams.h"

namespace trainyard::rpc {
namespace {

class WatchMetricsStream : public PullStream<v1::WatchMetricsResponse> {
 public:
  WatchMetricsStream(Services& services, JobId job, const v1::WatchMetricsRequest& request)
      : PullStream(services.streams, services.metric_reads),
        services_(services),
        job_(job),
        metrics_(request.metrics().begin(), request.metrics().end()),
        follow_(request.follow()),
        cursor_(request.cursor()) {}

 private:
  void OnStart() override {
    const std::weak_ptr<WatchMetricsStream> weak =
        std::static_pointer_cast<WatchMetricsStream>(shared_from_this());
    subscription_ = services_.notifier.Subscribe(job_, runtime::kJobChanged | runtime::kMetricsGrew,
                                                 [weak](JobId) {
                                                   if (const auto self = weak.lock()) self->Wake();
                                                 });
  }

  absl::StatusOr<Pulled> Next(v1::WatchMetricsResponse& response) override {
    // The state is read before the store: if the job had ended by then, all its points are there.
    const auto view = services_.board.FindJob(job_);
    const bool is_final = view == nullptr || core::job_fsm::IsFinal(view->record.state);
    TY_ASSIGN_OR_RETURN(const store::MetricPage page,
                        services_.metrics.ReadAfter(job_, metrics_, cursor_, kFollowedPointsMax));
    if (page.points.empty()) return follow_ && !is_final ? Pulled::kNothingYet : Pulled::kEnd;
    cursor_ = page.cursor;
    for (const store::StoredPoint& point : page.points) *response.add_points() = ToProto(point);
    response.set_cursor(cursor_);
    return Pulled::kMessage;
  }

  Services& services_;
  const JobId job_;
  const std::vector<std::string> metrics_;  // empty means all
  const bool follow_;
  std::unique_ptr<runtime::Notifier::Subscription> subscription_;
  int64_t cursor_;  // only Next uses it
};

}  // namespace

grpc::ServerWriteReactor<v1::WatchMetricsResponse>* StartWatchMetrics(
    Services& services, const access::Caller& caller, const v1::WatchMetricsRequest& request) {
  RequestCheck check;
  const JobId job = check.Job("name", request.name());
  check.NotNegative("cursor", request.cursor());
  check.MaxCount("metrics", request.metrics_size(), kPointsMax);
  if (!check.ok()) return FailedStream<v1::WatchMetricsResponse>(check.Take());
  if (services.board.FindJob(job) == nullptr) {
    return FailedStream<v1::WatchMetricsResponse>(error::JobNotFound(JobName(job)));
  }
  return StartStream<v1::WatchMetricsResponse>(
      services.streams, OwnerOf(caller),
      std::make_shared<WatchMetricsStream>(services, job, request));
}

}  // namespace trainyard::rpc
