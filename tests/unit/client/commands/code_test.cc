// Tests code against the fake server: how it travels with a submission, how it is looked at, and
// how a clone is told that it did not run in the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class CodeVerbs : public ::testing::Test {
 protected:
  CodeVerbs() {
    EXPECT_TRUE(MakeDirectories(dir_.File("project/src")).ok());
    dir_.Write("project/train.py", "import src.net\n");
    dir_.Write("project/src/net.py", "VERSION = 1\n");
    spec_ = dir_.Write("project/job.yaml",
                       "name: travels\ndevices: 1\nprogram:\n  code: .\n"
                       "  command: [python3, train.py]\n");
  }

  TempDir dir_;
  FakeServer server_;
  CommandRunner runner_{server_.address()};
  std::string spec_;
};

TEST_F(CodeVerbs, CodeTravelsOnceAndComesBackAsItWas) {
  const CommandResult first = runner_.Run({"submit", spec_});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("sent the code of '" + dir_.File("project") + "', "));
  const std::string digest = server_.last_create().spec().program().code();
  EXPECT_THAT(digest, StartsWith("sha256:"));
  EXPECT_EQ(server_.uploads(), 1);
  const CommandResult second = runner_.Run({"submit", spec_});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.err, Not(HasSubstr("sent the code"))) << "the server has it";
  EXPECT_EQ(server_.uploads(), 1);

  // Another machine has nothing in its cache.
  CommandRunner other(server_.address());
  const CommandResult listed = other.Run({"code", "ls", "1"});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(listed.out, AllOf(HasSubstr(digest), HasSubstr("src/net.py"), HasSubstr("train.py")));
  EXPECT_EQ(other.Run({"code", "cat", "1", "src/net.py"}).out, "VERSION = 1\n");
  const std::string folder = dir_.File("got");
  const CommandResult got = other.Run({"code", "get", "1", "-O", folder});
  EXPECT_EQ(got.exit_code, 0) << got.err;
  EXPECT_EQ(got.out, folder + "\n");
  EXPECT_EQ(ReadFile(JoinPath(folder, "train.py")).value_or(""), "import src.net\n");
}

TEST_F(CodeVerbs, CodeThatTheServerRefusesMakesNoJob) {
  server_.RefuseNextUpload(
      MakeError(absl::StatusCode::kResourceExhausted, "QUOTA_EXCEEDED", "storage is full"));
  const CommandResult result = runner_.Run({"submit", spec_});
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_THAT(result.err, HasSubstr("storage is full"));
  EXPECT_EQ(runner_.Run({"show", "1"}).exit_code, 3);
  EXPECT_EQ(runner_.Run({"submit", spec_}).exit_code, 0) << "it can be tried again";
}

TEST_F(CodeVerbs, MistakesAreTold) {
  EXPECT_EQ(runner_.Run({"submit", spec_}).exit_code, 0);
  server_.AddJob("without", v1::JOB_STATE_SUCCEEDED);
  for (const std::vector<std::string>& args : {std::vector<std::string>{"code", "ls", "2"},
                                               {"code", "cat", "2", "train.py"},
                                               {"code", "get", "2", "-O", dir_.File("none")},
                                               {"show", "2", "--code"}}) {
    const CommandResult result = runner_.Run(args);
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_THAT(result.err, HasSubstr("job 'jobs/2' has no code archive"));
  }
  EXPECT_EQ(runner_.Run({"code", "ls", "99"}).exit_code, 3);
  const CommandResult missing = runner_.Run({"code", "cat", "1", "test.py"});
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_THAT(missing.err, AllOf(HasSubstr("no file 'test.py'"), HasSubstr("`trainyard code ls`")));
  const CommandResult mixed = runner_.Run({"code", "get", "1", "-O", dir_.File("project")});
  EXPECT_EQ(mixed.exit_code, 6);
  EXPECT_THAT(mixed.err, HasSubstr("is not empty; choose another folder with -O"));
}

TEST_F(CodeVerbs, CodeWithoutItsDigestIsNotTaken) {
  EXPECT_EQ(runner_.Run({"submit", spec_}).exit_code, 0);
  server_.DamageCode("jobs/1");
  CommandRunner other(server_.address());
  const CommandResult result = other.Run({"code", "cat", "1", "train.py"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, ContainsRegex("has the digest sha256:.*; expected sha256:"));
}

class CodeOfClone : public CodeVerbs {
 protected:
  CodeOfClone() {
    EXPECT_EQ(runner_.Run({"submit", spec_}).exit_code, 0);
    EXPECT_EQ(runner_.Run({"submit", spec_}).exit_code, 0);
    server_.ChangeJob("jobs/2",
                      [](v1::Job& job) { job.mutable_provenance()->set_cloned_from("jobs/1"); });
    before_.set_interpreter("/usr/bin/podman");
    before_.set_image_digest("sha256:one");
    before_.set_packages("numpy==1.0");
  }
  // Returns what is told of the clone, which ran in `after`.
  std::string Told(const v1::ProgramEnvironment& after) {
    server_.SetEnvironment("jobs/1", before_);
    server_.SetEnvironment("jobs/2", after);
    const CommandResult result = runner_.Run({"show", "2", "--environment"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }

  v1::ProgramEnvironment before_;
};

TEST_F(CodeOfClone, AnotherImageIsTold) {
  v1::ProgramEnvironment after = before_;
  EXPECT_THAT(Told(after), AllOf(ContainsRegex("image +sha256:one"), HasSubstr("as for jobs/1")));
  after.set_image_digest("sha256:two");
  after.set_packages("numpy==2.0");
  EXPECT_THAT(Told(after), AllOf(ContainsRegex("image +sha256:one +sha256:two"),
                                 ContainsRegex("numpy +1.0 +2.0"), HasSubstr("jobs/1")));
  EXPECT_THAT(runner_.Run({"diff", "1", "2"}).out, ContainsRegex("image +sha256:one +sha256:two"));
}

TEST_F(CodeOfClone, AnImageThatIsNotKnownIsNoDifference) {
  v1::ProgramEnvironment after = before_;
  after.clear_image_digest();
  EXPECT_THAT(Told(after), AllOf(Not(HasSubstr("image")), HasSubstr("as for jobs/1")));
}

TEST_F(CodeOfClone, AnEnvironmentThatIsNotKnownIsNamed) {
  const CommandResult result = runner_.Run({"show", "1", "--environment"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the environment of jobs/1 is not known"));
}

}  // namespace
}  // namespace trainyard::testing
