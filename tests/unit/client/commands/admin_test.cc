// Tests that `admin` finds the state of a server of this host, and hands on what its program says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/unit/client/command_runner.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

class AdminTest : public ::testing::Test {
 protected:
  // Makes a program that prints its arguments and a warning, and ends with this code.
  void MakeServerProgram(int exit_code = 0) {
    const std::string path = runner_.home.File("trainyard-server");
    ASSERT_TRUE(WriteFileAtomically(path, absl::StrCat("#!/bin/sh\necho \"$@\"\necho careful >&2\n"
                                                       "exit ",
                                                       exit_code, "\n"))
                    .ok());
    ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  }
  void Touch(const std::string& path) {
    ASSERT_TRUE(MakeDirectories(path.substr(0, path.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomically(path, "").ok());
  }

  CommandRunner runner_{"unix:/nowhere"};
};

TEST_F(AdminTest, TakesTheStateOfUpBeforeThatOfTheHost) {
  MakeServerProgram();
  const auto none = runner_.Run({"admin", "check"});
  EXPECT_NE(none.exit_code, 0);
  EXPECT_THAT(none.err, HasSubstr("name the directory with --state-dir"));
  Touch(runner_.surroundings.server_settings);
  EXPECT_EQ(
      runner_.Run({"admin", "backup", "/b"}).out,
      absl::StrCat("--config ", runner_.surroundings.server_settings, " backup /b --keep 0\n"));
  const std::string own = runner_.home.File(".local/state/trainyard/server");
  Touch(own + "/trainyard.db");
  EXPECT_EQ(runner_.Run({"admin", "backup", "/b", "--keep", "3"}).out,
            absl::StrCat("--state_dir ", own, " backup /b --keep 3\n"));
  EXPECT_EQ(runner_.Run({"admin", "restore", "/b/1", "--replace", "--state-dir", "/s"}).out,
            "--state_dir /s restore /b/1 --replace\n");
  EXPECT_EQ(runner_.Run({"admin", "check", "/b/1", "-o", "json"}).out,
            "--state_dir /b/1 check --output json\n");
}

TEST_F(AdminTest, ChecksNoOtherFolderThanTheOneThatIsNamed) {
  MakeServerProgram();
  const auto two = runner_.Run({"admin", "check", "/b/1", "--state-dir", "/s"});
  EXPECT_NE(two.exit_code, 0);
  EXPECT_EQ(two.out, "");
  EXPECT_THAT(two.err, HasSubstr("'/b/1' and --state-dir '/s' name two folders"));
  EXPECT_EQ(runner_.Run({"admin", "check", "--state-dir", "/s"}).out,
            "--state_dir /s check --output table\n");
}

TEST_F(AdminTest, HandsOnWhatTheProgramSaysAndItsExitCode) {
  MakeServerProgram(/*exit_code=*/3);
  const auto result = runner_.Run({"admin", "check", "/b/1"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("careful\n"));
}

TEST_F(AdminTest, SaysIfTheServersProgramIsNotInstalled) {
  const auto result = runner_.Run({"admin", "check", "/b/1"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("trainyard-server"));
}

}  // namespace
}  // namespace trainyard::testing
