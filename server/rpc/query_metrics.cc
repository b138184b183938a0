// Answers with metric series, below the size of a message.
#include "server/rpc/query_metrics.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "server/rpc/convert.h"
#include "server/rpc/limits.h"

namespace trainyard::rpc {

absl::Status QuerySeries(store::MetricsStore& metrics, JobId job,
                         const v1::QueryMetricsRequest& request,
                         v1::QueryMetricsResponse& response) {
  // This many points of a series are too many for an answer, so no more are read.
  constexpr int64_t kPointBytesMin = 4;
  constexpr int64_t kPointsOfAnswerMax = int64_t{kPageBytesMax} / kPointBytesMin;
  store::PointChoice choice;
  choice.max_points = request.max_points() == 0
                          ? kPointsOfAnswerMax
                          : std::min<int64_t>(request.max_points(), kPointsOfAnswerMax);
  choice.keeps_extremes = request.sampling() == v1::METRIC_SAMPLING_EXTREMES;
  if (request.has_first_step()) choice.first_step = request.first_step();
  if (request.has_last_step()) choice.last_step = request.last_step();
  const std::vector<std::string> names(request.metrics().begin(), request.metrics().end());
  TY_ASSIGN_OR_RETURN(const store::MetricSeries all, metrics.Query(job, names, choice));
  size_t bytes = 0;
  for (const auto& [name, points] : all) {
    v1::MetricSeries* series = response.add_series();
    series->set_name(name);
    for (const store::StoredPoint& stored : points) {
      v1::MetricPoint* point = series->add_points();
      *point = ToProto(stored);
      bytes += point->ByteSizeLong();
      if (bytes > kPageBytesMax) {
        return MakeError(absl::StatusCode::kResourceExhausted, "ANSWER_TOO_LARGE",
                         absl::StrCat("the points of ", JobName(job),
                                      " do not fit into one answer; ask for fewer with "
                                      "max_points, or use WatchMetrics"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace trainyard::rpc
