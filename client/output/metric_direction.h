// Says which way the values of a metric should go.
#pragma once

#include "absl/strings/string_view.h"

namespace trainyard::output {

// Returns true for metrics of which larger values are better, such as test.accuracy and
// samples_per_s.
bool IsLargerBetter(absl::string_view metric);

}  // namespace trainyard::output
