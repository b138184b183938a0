// Aligns text in columns, for people.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard {

// Returns the number of columns that UTF-8 text takes on a terminal. Colours (escape sequences that
// end with an m) take none.
int DisplayWidth(absl::string_view text);

// Aligns rows of cells with two spaces between columns and none at the end of a line. `align` has a
// letter for each column: l or r. Every line ends with a newline.
std::string AlignColumns(const std::vector<std::vector<std::string>>& rows,
                         absl::string_view align);

}  // namespace trainyard
