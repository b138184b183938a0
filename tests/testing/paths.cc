#include "tests/testing/paths.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"

namespace trainyard::testing {
namespace {

std::string Locate(const char* variable, absl::string_view folder, absl::string_view relative) {
  const char* root = std::getenv(variable);
  const std::string base = root != nullptr && *root != '\0'
                               ? std::string(root)
                               : SourcePath(absl::StrCat("../shared/", folder));
  return JoinPath(base, relative);
}

std::optional<std::string> IfExists(std::string path) {
  if (!FileExists(path)) return std::nullopt;
  return path;
}

}  // namespace

std::optional<std::string> DataPath(absl::string_view relative) {
  return IfExists(Locate("TRAINYARD_DATA", "data", relative));
}

std::optional<std::string> ReferencePath(absl::string_view relative) {
  return IfExists(Locate("TRAINYARD_REFERENCE", "reference", relative));
}

std::string MissingData(absl::string_view relative) {
  return absl::StrCat("'", Locate("TRAINYARD_DATA", "data", relative),
                      "' is absent; TRAINYARD_DATA names the folder of the data sets");
}

std::string MissingReference(absl::string_view relative) {
  return absl::StrCat("'", Locate("TRAINYARD_REFERENCE", "reference", relative),
                      "' is absent; TRAINYARD_REFERENCE names the folder of the reference numbers");
}

std::string SourcePath(absl::string_view relative) {
  return relative.empty() ? TRAINYARD_SOURCE_DIR : JoinPath(TRAINYARD_SOURCE_DIR, relative);
}

std::string BinaryPath(absl::string_view name) {
  return name.empty() ? TRAINYARD_BIN_DIR : JoinPath(TRAINYARD_BIN_DIR, name);
}

}  // namespace trainyard::testing
