// Finds what is recorded of two runs and differs, and may be why other results came out.
#pragma once

#include <string>
#include <vector>

#include "server/verification/run_record.h"

namespace trainyard::verification {

// Returns a sentence for each difference, the likeliest cause first.
std::vector<std::string> Causes(const RunRecord& first, const RunRecord& second);

// Says that there is none, and what else may be the cause.
std::string NoCause(const RunRecord& second);

}  // namespace trainyard::verification
