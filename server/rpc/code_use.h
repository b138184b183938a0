// Decides who may use which code. A digest is no secret: it stands in specs, messages and logs. So
// to know one gives nobody a right to the bytes.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/access/caller.h"
#include "server/rpc/request.h"
#include "server/rpc/services.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::rpc {

// Returns true if the caller may use the archive: it has uploaded it not long ago, or a job or
// a saved spec that it may see has it. The archive then stays for a while.
bool MayUseCode(const access::Caller& caller, Services& services, const std::string& digest);

// Checks the code of a submission and what is said of its origin, and notes it. Returns NOT_FOUND
// (CODE_NOT_FOUND) if the caller may use no such archive. With `is_trial` the archive may still be
// on its way.
absl::Status TakeCode(const v1::JobSpec& resolved, const v1::CodeOrigin& origin, bool is_trial,
                      const access::Caller& caller, Services& services, RequestCheck& check,
                      core::Submission& submission);

}  // namespace trainyard::rpc
