// Tests that the folders of programs and of their state are found.
#include "common/base/program_paths.h"

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/testing/temp_dir.h"

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
            "there is no '/nowhere/trainyard-trainer'; it belongs beside the trainyard binary, or "
            "into ../libexec/trainyard from there");
}

TEST(ProgramPaths, AProgramThatNobodyStartsByHandIsFoundInTheFolderOfHelpers) {
  const testing::TempDir dir;
  const std::string bin = JoinPath(dir.path(), "bin");
  const std::string helpers = JoinPath(dir.path(), "libexec/trainyard");
  ASSERT_TRUE(MakeDirectories(bin, 0700).ok());
  ASSERT_TRUE(MakeDirectories(helpers, 0700).ok());
  ASSERT_TRUE(WriteFileAtomically(JoinPath(helpers, "trainyard-fetch"), "", 0700).ok());
  EXPECT_EQ(*FindProgram(bin, "trainyard-fetch"),
            JoinPath(bin, "../libexec/trainyard/trainyard-fetch"));
  ASSERT_TRUE(WriteFileAtomically(JoinPath(bin, "trainyard-fetch"), "", 0700).ok());
  EXPECT_EQ(*FindProgram(bin, "trainyard-fetch"), JoinPath(bin, "trainyard-fetch"))
      << "what was built together belongs together";
}

TEST(ProgramPaths, StateLiesBelowTheHomeOfStates) {
  EXPECT_EQ(StateHome("", "/home/anna"), "/home/anna/.local/state/trainyard");
  EXPECT_EQ(StateHome("/state", "/home/anna"), "/state/trainyard");
}

}  // namespace
}  // namespace trainyard
