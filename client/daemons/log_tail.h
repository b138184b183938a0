// Why a daemon that was just started has ended, from its log.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard::daemons {

// The last line behind `offset` that looks like an error, else the last line at all; empty where
// there is none.
std::string CauseFromLog(const std::string& path, int64_t offset);

}  // namespace trainyard::daemons
