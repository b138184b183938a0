// Columns of text for people.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::trainer {

// Rows of cells, aligned with two spaces between columns and none at the end of a line. `align`: a
// letter a column, l or r.
std::string AlignColumns(const std::vector<std::vector<std::string>>& rows,
                         absl::string_view align);

// "15.9 G", "812 M", "0": decimal thousands, three digits.
std::string FormatQuantity(double value);
// "1.24 ms".
std::string FormatSeconds(double seconds);

}  // namespace trainyard::trainer
