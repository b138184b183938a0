// Formats quantities as text for people.
#pragma once

#include <string>

namespace trainyard::trainer {

// Returns "15.9 G", "812 M" or "0": decimal thousands, three digits.
std::string FormatQuantity(double value);
// Returns a time such as "1.24 ms".
std::string FormatSeconds(double seconds);

}  // namespace trainyard::trainer
