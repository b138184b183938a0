// Shows jobs with the remarks that people made on them, and with what came out when they were run
// again.
#pragma once

#include <memory>

#include "server/rpc/services.h"
#include "server/runtime/board.h"
#include "server/store/sqlite/remark_store.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::rpc {

// Returns how the store of remarks knows the job.
store::RemarkedJob RemarkedJobOf(const core::JobRecord& job);

// Returns the remarks on a job, or null if there are none or no store.
std::shared_ptr<const store::Remarks> RemarksOn(const store::RemarkStore* store,
                                                const core::JobRecord& job);

// Returns the sum of all results of second runs.
v1::VerificationSummary SummaryOf(const store::Remarks& remarks);

// Returns the job as it is shown, with its note, its added tags and its verifications. `remarks`
// may be null.
v1::Job ShownJob(const runtime::JobView& view, const store::Remarks* remarks);
v1::Job ShownJob(const Services& services, const runtime::JobView& view);

}  // namespace trainyard::rpc
