// Thins out metric series and keeps the answer below the size of a message.
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
namespace {

// Returns the indices of `count` points chosen evenly out of `size`. The first and the last are
// included.
size_t Chosen(size_t i, size_t count, size_t size) {
  return count <= 1 ? size - 1 : i * (size - 1) / (count - 1);
}

}  // namespace

absl::Status QuerySeries(store::MetricsStore& metrics, JobId job,
                         const v1::QueryMetricsRequest& request,
                         v1::QueryMetricsResponse& response) {
  const std::vector<std::string> names(request.metrics().begin(), request.metrics().end());
  TY_ASSIGN_OR_RETURN(const store::MetricSeries all, metrics.Query(job, names));
  size_t bytes = 0;
  for (const auto& [name, points] : all) {
    v1::MetricSeries* series = response.add_series();
    series->set_name(name);
    const size_t limit =
        request.max_points() > 0 ? static_cast<size_t>(request.max_points()) : points.size();
    const size_t count = std::min(limit, points.size());
    for (size_t i = 0; i < count; ++i) {
      v1::MetricPoint* point = series->add_points();
      *point = ToProto(points[Chosen(i, count, points.size())]);
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
