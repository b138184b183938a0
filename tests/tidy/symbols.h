// Finds what production code declares and only tests use.
#pragma once

#include <string>
#include <vector>

#include "tests/tidy/source_tree.h"

namespace trainyard::tidy {

// Returns a finding for each function and constant that a header outside of tests/ declares, that
// no production code names besides its declaration and definition, and that tests name. It looks
// only at names, so it overlooks a name that several things share, and it never blames an override.
std::vector<std::string> SymbolsForTestsAlone(const std::vector<SourceFile>& tree);

}  // namespace trainyard::tidy
