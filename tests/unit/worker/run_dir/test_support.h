// Helpers that the tests of the run directory share.
#pragma once

#include <cstdlib>
#include <string>

#include "common/base/check.h"
#include "common/base/files.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::run_dir {

inline std::string GoldenText(const std::string& name) {
  const auto text = ReadFile(testing::SourcePath("tests/data/run_directory/" + name));
  TY_CHECK_OK(text.status());
  return *text;
}

}  // namespace trainyard::run_dir
