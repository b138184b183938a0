// Who computes which replicas, and why, for people.
#pragma once

#include <string>

#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

// The reason, and a table with a row a rank; empty before the job's first step.
std::string HostingText(const v1::Job& job);

}  // namespace trainyard::commands
