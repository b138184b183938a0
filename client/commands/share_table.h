// Draws the table of who uses the pool.
#pragma once

#include <string>

#include "trainyard/v1/sharing.pb.h"

namespace trainyard::commands {

// Returns a table with a row for each user within each project. The largest use comes first.
std::string ShareTable(const v1::ListSharesResponse& response);

}  // namespace trainyard::commands
