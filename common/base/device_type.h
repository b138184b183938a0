// Says what may be the type of a device.
#pragma once

#include "absl/strings/string_view.h"

namespace trainyard {

// Returns true for [A-Za-z0-9_.-]{1,63}, such as "cpu" or "h200".
bool IsDeviceType(absl::string_view type);

}  // namespace trainyard
