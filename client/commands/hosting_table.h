// Tells people which rank computes which replicas, and why.
#pragma once

#include <string>

#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

// The reason, and a table with a row for each rank; empty before the job's first step.
std::string HostingText(const v1::Job& job);

}  // namespace trainyard::commands
