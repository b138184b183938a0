// A directory of one test, removed with what is in it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"

namespace trainyard {

class TempDir {
 public:
  TempDir() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = absl::StrCat(test->test_suite_name(), ".", test->name(), ".", getpid());
    for (char& c : name) {
      if (c == '/') c = '_';
    }
    path_ = JoinPath(::testing::TempDir(), name);
    TY_CHECK_OK(RemoveTree(path_));
    TY_CHECK_OK(MakeDirectories(path_));
  }
  ~TempDir() { (void)RemoveTree(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string File(absl::string_view name) const { return JoinPath(path_, name); }

 private:
  std::string path_;
};

}  // namespace trainyard
