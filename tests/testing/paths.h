// Where tests find what is not part of the source tree, and what is.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard::testing {

// A data set's file or folder below TRAINYARD_DATA, else below <source dir>/../shared/data. Nothing
// where it is absent: skip the test then, with MissingData as the reason.
std::optional<std::string> DataPath(absl::string_view relative);
// What to say in GTEST_SKIP: the place that was looked at.
std::string MissingData(absl::string_view relative);

// A path inside the source tree; always there.
std::string SourcePath(absl::string_view relative);
// A file of reference numbers, which are in tests/data/reference.
std::string ReferencePath(absl::string_view relative);
// A program that this build made, or its folder of programs where `name` is empty.
std::string BinaryPath(absl::string_view name);

}  // namespace trainyard::testing
