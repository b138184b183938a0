// Quantities as text for people.
#pragma once

#include <string>

namespace trainyard::trainer {

// "15.9 G", "812 M", "0": decimal thousands, three digits.
std::string FormatQuantity(double value);
// "1.24 ms".
std::string FormatSeconds(double seconds);

}  // namespace trainyard::trainer
