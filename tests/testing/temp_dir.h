// Makes a folder for one test.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace trainyard::testing {

// The folder is made empty below TMPDIR (else /tmp). It is removed with everything in it when the
// object is destroyed.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  // Returns the path of `name` in it. No file is created.
  std::string File(absl::string_view name) const;
  // Writes a file of that name, whose folder exists, and returns its path.
  std::string Write(absl::string_view name, absl::string_view content) const;

 private:
  std::string path_;
};

}  // namespace trainyard::testing
