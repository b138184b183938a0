// Implements ListJobs, which makes pages of jobs, filtered, with arrays as one row or job by job.
#pragma once

#include "absl/status/status.h"
#include "server/access/caller.h"
#include "server/rpc/services.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::rpc {

// Makes a page of the jobs that the caller may see, newest jobs first unless the request has
// another order. The token of a page is the number of its last job, or in such an order how many
// jobs came before the next one; jobs that change meanwhile may then come twice or not at all.
absl::Status ListPage(const v1::ListJobsRequest& request, const access::Caller& caller,
                      const Services& services, v1::ListJobsResponse& response);

}  // namespace trainyard::rpc
