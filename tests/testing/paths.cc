// Resolves paths against what the build was configured with and against the environment.
#include "tests/testing/paths.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"

namespace trainyard::testing {
namespace {

std::string LocateData(absl::string_view relative) {
  const char* root = std::getenv("TRAINYARD_DATA");
  const bool is_given = root != nullptr && *root != '\0';
  return JoinPath(is_given ? std::string(root) : SourcePath("../shared/data"), relative);
}

}  // namespace

std::optional<std::string> DataPath(absl::string_view relative) {
  std::string path = LocateData(relative);
  if (!FileExists(path)) return std::nullopt;
  return path;
}

std::string MissingData(absl::string_view relative) {
  return absl::StrCat("'", LocateData(relative),
                      "' is absent; TRAINYARD_DATA names the folder of the data sets");
}

std::string SourcePath(absl::string_view relative) {
  return relative.empty() ? TRAINYARD_SOURCE_DIR : JoinPath(TRAINYARD_SOURCE_DIR, relative);
}

std::string ReferencePath(absl::string_view relative) {
  return SourcePath(absl::StrCat("tests/data/reference/", relative));
}

std::string BinaryPath(absl::string_view name) {
  return name.empty() ? TRAINYARD_BIN_DIR : JoinPath(TRAINYARD_BIN_DIR, name);
}

}  // namespace trainyard::testing
