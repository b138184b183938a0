// Shows which rank computes which replicas, and why.
#pragma once

#include <string>

#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

// Returns the reason, and a table with a row for each rank. The text is empty before the job's
// first step.
std::string HostingText(const v1::Job& job);

}  // namespace trainyard::commands
