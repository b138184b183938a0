// Who uses the pool, for people.
#pragma once

#include <string>

#include "trainyard/v1/sharing.pb.h"

namespace trainyard::commands {

// A row for each user within each project; the largest use first.
std::string ShareTable(const v1::ListSharesResponse& response);

}  // namespace trainyard::commands
