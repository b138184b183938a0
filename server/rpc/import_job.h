// Turns the request that imports a job into an input of the yard.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/core/yard/inputs.h"
#include "server/rpc/decisions.h"
#include "server/rpc/request.h"
#include "server/rpc/services.h"
#include "trainyard/v1/bundle.pb.h"

namespace trainyard::rpc {

struct Import {
  core::ImportJob input;
  // Sentences for the user about what the job referred to there and cannot here.
  std::vector<std::string> warnings;
};

// Reads the job. Nothing in it is trusted, since it stands in a file that anybody may have written.
// Violations go to `check`, and are all of them in its error: also those of the two specs, if this
// version does not accept them. Returns NOT_FOUND (CODE_NOT_FOUND) if the caller may not use its
// code, and PERMISSION_DENIED (NOT_A_MEMBER), which `decisions` takes.
absl::StatusOr<Import> ImportOf(const v1::ImportJobRequest& request, const access::Caller& caller,
                                Services& services, RequestCheck& check, Decisions& decisions);

}  // namespace trainyard::rpc
