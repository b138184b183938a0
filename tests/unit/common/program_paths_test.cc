// Tests that the folders of programs and of their state are found.
#include "common/base/program_paths.h"

#include <gtest/gtest.h>

#include "common/base/files.h"

namespace trainyard {
namespace {

TEST(ProgramPaths, TheFolderHoldsThisProgram) {
  EXPECT_TRUE(FileExists(JoinPath(ProgramFolder(), "base_test")));
}

TEST(ProgramPaths, AProgramIsFoundBesideThisOne) {
  EXPECT_EQ(*FindProgram(ProgramFolder(), "base_test"), SiblingProgram("base_test"));
  const absl::Status missing = FindProgram("/nowhere", "trainyard-trainer").status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_EQ(missing.message(),
            "there is no '/nowhere/trainyard-trainer'; it belongs beside the trainyard binary");
}

TEST(ProgramPaths, StateLiesBelowTheHomeOfStates) {
  EXPECT_EQ(StateHome("", "/home/anna"), "/home/anna/.local/state/trainyard");
  EXPECT_EQ(StateHome("/state", "/home/anna"), "/state/trainyard");
}

}  // namespace
}  // namespace trainyard
