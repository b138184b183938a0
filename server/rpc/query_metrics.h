// Reads metric series for display.
#pragma once

#include "absl/status/status.h"
#include "common/base/ids.h"
#include "server/store/metrics_store.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::rpc {

// Fills `response` in, and blocks on the store. Returns RESOURCE_EXHAUSTED if the answer does not
// fit into a message.
absl::Status QuerySeries(store::MetricsStore& metrics, JobId job,
                         const v1::QueryMetricsRequest& request,
                         v1::QueryMetricsResponse& response);

}  // namespace trainyard::rpc
