// Turns JSON into CSV, for spreadsheets and data frames.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace trainyard::output {

// Returns a JSON list of objects as CSV (RFC 4180, with newlines alone at the ends of lines). There
// is a column for each field, named by its path ("spec.train.seed"), in the order in which they are
// met; lists are JSON in one cell, and what an object lacks is an empty cell. Returns an empty text
// for an empty list, and text that is no list of objects unchanged.
std::string JsonToCsv(absl::string_view json);

}  // namespace trainyard::output
