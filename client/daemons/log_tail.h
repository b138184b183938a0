// Finds in a log why a daemon that was just started has ended.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard::daemons {

// Returns the last line after `offset` that looks like an error, or else the last line, or an empty
// text if there is no line.
std::string CauseFromLog(const std::string& path, int64_t offset);

}  // namespace trainyard::daemons
