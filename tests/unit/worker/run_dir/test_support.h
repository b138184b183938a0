// What the tests of the run directory share.
#pragma once

#include <cstdlib>
#include <string>

#include "common/base/check.h"
#include "common/base/files.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"

namespace trainyard::run_dir {

// A folder that is removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = ::testing::TempDir() + "/run_dir_test.XXXXXX";
    TY_CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { (void)RemoveTree(path_); }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string GoldenText(const std::string& name) {
  const auto text = ReadFile(testing::SourcePath("tests/data/run_directory/" + name));
  TY_CHECK_OK(text.status());
  return *text;
}

}  // namespace trainyard::run_dir
