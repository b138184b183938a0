// Finds files of the source tree, and files that tests need but that are not part of it.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard::testing {

// Returns a data set's file or folder below TRAINYARD_DATA, or else below <source
// dir>/../shared/data. Returns nothing if it is absent; skip the test then, with MissingData as the
// reason.
std::optional<std::string> DataPath(absl::string_view relative);
// Returns the text for GTEST_SKIP, which names the place where the data was expected.
std::string MissingData(absl::string_view relative);

// Returns a path inside the source tree, which always exists.
std::string SourcePath(absl::string_view relative);
// A file of reference numbers, which are in tests/data/reference.
std::string ReferencePath(absl::string_view relative);
// A program that this build made, or its folder of programs where `name` is empty.
std::string BinaryPath(absl::string_view name);

}  // namespace trainyard::testing
