// Formats quantities as text for people.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard::trainer {

// Returns "15.9 G", "812 M" or "0": decimal thousands, three digits.
std::string FormatQuantity(double value);
// Returns a time such as "1.24 ms".
std::string FormatSeconds(double seconds);
// Returns "1 layer" or "2,000 layers".
std::string Counted(int64_t count, absl::string_view noun);

}  // namespace trainyard::trainer
