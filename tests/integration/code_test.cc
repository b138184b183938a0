// Tests that the code of a program travels with its job: as it was, once, and to whoever may see
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Code : public ::testing::Test {
 protected:
  void SetUp() override {
    yard_.Start();
    std::filesystem::create_directories(yard_.File("project/src"));
    Write("train.py", "from src import net\nprint('version', net.VERSION)\n");
    Write("src/net.py", "VERSION = 'one'\n");
    Write("src/__init__.py", "");
    Write(".trainyardignore", "*.bin\n");
    Write("data.bin", "not code");
    Write("job.yaml",
          "name: travels\ndevices: 1\nprogram:\n  code: .\n"
          "  command: [/usr/bin/python3, train.py]\n");
  }
  void Write(const std::string& name, const std::string& content) {
    ASSERT_TRUE(ReplaceFile(yard_.File(absl::StrCat("project/", name)), content).ok());
  }
  ProcessResult Run(std::vector<std::string> args) {
    args.insert(args.begin(), std::string("run"));
    return yard_.Cli(args);
  }

  Yard yard_;
};

TEST_F(Code, ACloneRunsTheCodeAsItWas) {
  const std::string spec = yard_.File("project/job.yaml");
  const ProcessResult first = Run({spec});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.out, "version one\n");
  EXPECT_THAT(first.err, HasSubstr("sent the code"));
  const ProcessResult again = Run({spec});
  EXPECT_EQ(again.out, "version one\n") << again.err;
  EXPECT_THAT(again.err, Not(HasSubstr("sent the code"))) << "the server has it";

  Write("src/net.py", "VERSION = 'two'\n");
  const ProcessResult changed = Run({spec});
  EXPECT_EQ(changed.out, "version two\n") << changed.err;
  const ProcessResult clone = yard_.Cli({"clone", "1", "--follow", "-y"});
  EXPECT_EQ(clone.exit_code, 0) << clone.err;
  EXPECT_EQ(clone.out, "version one\n") << clone.err;

  const ProcessResult diff = yard_.Cli({"diff", "1", "3"});
  EXPECT_THAT(diff.out,
              AllOf(HasSubstr("changed"), HasSubstr("src/net.py"), HasSubstr("-VERSION = 'one'"),
                    HasSubstr("+VERSION = 'two'"), Not(HasSubstr("train.py"))));
  const ProcessResult shown = yard_.Cli({"show", "1", "--code"});
  EXPECT_THAT(shown.out,
              AllOf(HasSubstr("src/net.py"), HasSubstr("sha256:"), Not(HasSubstr("data.bin"))));
  EXPECT_EQ(yard_.Cli({"code", "cat", "1", "src/net.py"}).out, "VERSION = 'one'\n");
  const std::string out = yard_.File("out");
  EXPECT_EQ(yard_.Cli({"code", "get", "1", "-O", out}).exit_code, 0);
  EXPECT_EQ(*ReadFile(JoinPath(out, "src/net.py")), "VERSION = 'one'\n");
  EXPECT_NE(yard_.Cli({"code", "get", "1", "-O", out}).exit_code, 0) << "files would be mixed up";

  const ProcessResult environment = yard_.Cli({"show", "4", "--environment"});
  EXPECT_THAT(environment.out,
              AllOf(HasSubstr("/usr/bin/python3 (Python 3."), HasSubstr("as for jobs/1")))
      << environment.err;
}

TEST_F(Code, ACommandTakesItsCodeAlong) {
  const ProcessResult result = Run({"--code", yard_.File("project"), "--", "sh", "-c",
                                    "test $TRAINYARD_CODE = $(pwd) && ls && touch written"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "job.yaml\nsrc\ntrain.py\n");
  const ProcessResult fresh = Run({"--code", yard_.File("project"), "--", "ls", "written"});
  EXPECT_NE(fresh.exit_code, 0) << "each attempt has a copy of its own";
  const ProcessResult below =
      Run({"--code", yard_.File("project"), "--set", "program.directory=src", "--", "ls"});
  EXPECT_EQ(below.out, "__init__.py\nnet.py\n") << below.err;

  const ProcessResult without = Run({"--", "sh", "-c", "ls train.py || true"});
  EXPECT_EQ(without.exit_code, 0) << without.err;
  EXPECT_THAT(without.out, Not(::testing::StartsWith("train.py")));
  const ProcessResult gained =
      yard_.Cli({"clone", "4", "--code", yard_.File("project"), "--follow", "-y"});
  EXPECT_EQ(gained.out, "train.py\n") << gained.err << "it starts in the code, not where it was";
}

TEST_F(Code, CodeOutlivesRestartsOfServerAndWorker) {
  const std::string job = yard_.Submit(
      absl::StrCat("name: later\ndevices: 1\nprogram:\n  code: ", yard_.File("project"),
                   "\n  command: [cat, src/net.py]\n"),
      {"--begin", "+1h"});
  yard_.KillServer();
  yard_.StartServer();
  const ProcessResult clone = yard_.Cli({"clone", "1", "--follow", "-y"});
  EXPECT_EQ(clone.out, "VERSION = 'one'\n") << clone.err;
}

}  // namespace
}  // namespace trainyard::testing
