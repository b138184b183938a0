// Implements ListJobs, which makes pages of jobs, filtered, with arrays as one row or job by job.
#pragma once

#include "absl/status/status.h"
#include "server/runtime/board.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::rpc {

// Makes a page, newest jobs first. The token of a page is the number of its last job.
absl::Status ListPage(const v1::ListJobsRequest& request, const runtime::Board& board,
                      v1::ListJobsResponse& response);

}  // namespace trainyard::rpc
