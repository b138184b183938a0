// Finds units that include each other. A unit is a header with its source.
#pragma once

#include <string>
#include <vector>

#include "tests/tidy/source_tree.h"

namespace trainyard::tidy {

// Returns a finding for each group of production units that include each other in a circle, with
// the includes that close it.
std::vector<std::string> CyclesOfUnits(const std::vector<SourceFile>& tree);

}  // namespace trainyard::tidy
