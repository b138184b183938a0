// Makes a folder, and removes it with everything in it.
#include "tests/testing/temp_dir.h"

#include <cstdlib>

#include "common/base/check.h"
#include "common/base/files.h"

namespace trainyard::testing {

TempDir::TempDir() {
  const char* parent = std::getenv("TMPDIR");
  path_ = JoinPath(parent != nullptr && *parent != '\0' ? parent : "/tmp", "trainyard-test-XXXXXX");
  TY_CHECK(mkdtemp(path_.data()) != nullptr);
}

TempDir::~TempDir() {
  (void)RemoveTree(path_);
}

std::string TempDir::File(absl::string_view name) const {
  return JoinPath(path_, name);
}

std::string TempDir::Write(absl::string_view name, absl::string_view content) const {
  std::string path = File(name);
  TY_CHECK_OK(ReplaceFile(path, content));
  return path;
}

}  // namespace trainyard::testing
