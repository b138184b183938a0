// Tests submit and clone of one job, against the fake server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "common/base/errors.h"
#include "common/base/files.h"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kSubmittedSpec[] =
    "name: small\nmodel: {mlp: {}}\ndata: {dataset: glyphs}\ntrain: {epochs: 1}\n"
    "optimizer: {sgd: {lr: 0.1}}\n";

class Submit : public ::testing::Test {
 protected:
  FakeServer server_;
  CommandRunner runner_{server_.address()};
  const std::string spec_ = runner_.home.Write("job.yaml", kSubmittedSpec);
};

TEST_F(Submit, PrintsTheNameOfTheJobAndSendsARequestId) {
  const CommandResult result = runner_.Run({"submit", spec_});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "jobs/1\n");
  EXPECT_THAT(result.err, HasSubstr("trainyard watch 1"));
  EXPECT_EQ(server_.last_create().request_id().size(), 36u);
  EXPECT_EQ(runner_.Run({"submit", spec_, "-o", "name", "-q"}).out, "jobs/2\n");
}

TEST_F(Submit, TheSameRequestIdGivesTheSameJob) {
  runner_.Run({"submit", spec_, "--request-id", "r"});
  EXPECT_EQ(runner_.Run({"submit", spec_, "--request-id", "r"}).out, "jobs/1\n");
}

TEST_F(Submit, TheCommandLineChangesTheSpec) {
  const CommandResult result =
      runner_.Run({"submit", spec_, "--set", "train.replicas=3", "--set", "schedule=cosine",
                   "--devices", "2", "--name", "renamed"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const v1::JobSpec spec = server_.last_create().spec();
  EXPECT_EQ(spec.train().replicas(), 3);
  EXPECT_TRUE(spec.schedule().has_cosine());
  EXPECT_EQ(spec.devices().count(), 2);
  EXPECT_EQ(spec.name(), "renamed");
}

TEST_F(Submit, MistakesOfTheFileAndTheCommandLineAreToldTogether) {
  const std::string bad =
      runner_.home.Write("bad.yaml", std::string(kSubmittedSpec) + "prioritty: 1\n");
  const CommandResult result = runner_.Run(
      {"submit", bad, "--set", "train.global_batch=0", "--set", "optimizer.sgd.moment=1"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("bad.yaml:6:1: prioritty: unknown key; did you mean 'priority'?"),
                    HasSubstr("command line: train.global_batch: 0 is not accepted"),
                    HasSubstr("command line: optimizer.sgd.moment: no such field; did you mean "
                              "'momentum'?"),
                    HasSubstr("3 mistakes"), HasSubstr("nothing was submitted")));
}

TEST_F(Submit, ASetWithoutValueIsAMistakeOfUse) {
  const CommandResult result = runner_.Run({"submit", spec_, "--set", "train.epochs"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("has no PATH=VALUE"));
}

TEST_F(Submit, ViolationsOfTheServerAreShownInTheFile) {
  server_.RefuseNextCreate(InvalidFields({{"spec.optimizer.sgd.lr", "is too bold"}}));
  const CommandResult result = runner_.Run({"submit", spec_});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("job.yaml:5:23: optimizer.sgd.lr: is too bold\n"
                                    "  5 | optimizer: {sgd: {lr: 0.1}}"));
}

TEST_F(Submit, OtherRefusalsKeepTheirExitCodes) {
  server_.RefuseNextCreate(error::QuotaExceeded("user:anna", "queued jobs", 101, 100));
  EXPECT_EQ(runner_.Run({"submit", spec_}).exit_code, 7);
  server_.RefuseNextCreate(error::RequestIdReused("r"));
  EXPECT_EQ(runner_.Run({"submit", spec_}).exit_code, 6);
}

TEST_F(Submit, AServerThatIsAwayForAMomentIsAskedAgain) {
  server_.RefuseNextCreate(absl::UnavailableError("restarting"));
  const CommandResult result = runner_.Run({"submit", spec_});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "jobs/1\n");
}

TEST_F(Submit, ADryRunShowsTheResolvedSpecAndStoresNothing) {
  const CommandResult result = runner_.Run({"submit", spec_, "--dry-run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("name: small\n"), HasSubstr("  every: 1 epoch\n"),
                                HasSubstr("  global_batch: 64\n")));
  EXPECT_THAT(result.err, AllOf(HasSubstr("memory plan:\n  not available"),
                                HasSubstr("all 2 devices are held by jobs/1")));
  EXPECT_TRUE(server_.last_create().validate_only());
  EXPECT_EQ(runner_.Run({"ls", "-o", "name"}).out, "");
}

TEST_F(Submit, ADryRunNeedsNoServer) {
  server_.Stop();
  const CommandResult result = runner_.Run({"submit", spec_, "--dry-run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("name: small\n"));
  EXPECT_THAT(result.err, HasSubstr("queue:\n  not available: no server answers"));
}

TEST_F(Submit, TheMemoryPlanComesFromTheTrainer) {
  const std::string trainer = runner_.home.Write(
      "trainyard-trainer",
      "#!/bin/sh\n[ \"$1 $2\" = '--plan -' ] && grep -q '\"epochs\":\"1\"' || exit 9\n"
      "echo '{\"arena_bytes\": 1572864, \"ranks\": [{\"peak_bytes\": 2048}]}'\n");
  ASSERT_EQ(chmod(trainer.c_str(), 0755), 0);
  const CommandResult result = runner_.Run({"submit", spec_, "--dry-run"});
  EXPECT_THAT(result.err,
              HasSubstr("memory plan:\n  arena: 1.5 MiB\n  ranks:\n    - peak: 2.0 KiB"));
}

TEST_F(Submit, WithoutAServerItSaysHowToStartOne) {
  server_.Stop();
  const CommandResult result = runner_.Run({"submit", spec_});
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_THAT(result.err, HasSubstr("trainyard up"));
}

TEST_F(Submit, AFileThatIsNotThereIsNotFound) {
  const CommandResult result = runner_.Run({"submit", "no-such.yaml"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("no-such.yaml"));
}

TEST_F(Submit, TheServerMayComeFromTheConfigFile) {
  runner_.surroundings.server.clear();
  ASSERT_TRUE(MakeDirectories(runner_.home.File(".config/trainyard")).ok());
  const std::string config =
      runner_.home.Write(".config/trainyard/config.yaml",
                         "current: lab\ncontexts:\n  lab: {server: '" + server_.address() + "'}\n");
  EXPECT_EQ(runner_.Run({"submit", spec_}).out, "jobs/1\n");
  runner_.home.Write(".config/trainyard/config.yaml", "current: home\ncontexts: {}\n");
  const CommandResult result = runner_.Run({"submit", spec_});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("there is no context 'home'"));
  runner_.home.Write(".config/trainyard/config.yaml", "\tx");
  EXPECT_EQ(runner_.Run({"submit", spec_}).exit_code, 2) << "it is not ignored";
}

class Clone : public Submit {
 protected:
  void SetUp() override { server_.AddJob("origin", v1::JOB_STATE_SUCCEEDED); }
};

TEST_F(Clone, ShowsTheDifferenceAndSubmits) {
  const CommandResult result =
      runner_.Run({"clone", "last", "--set", "optimizer.sgd.lr=0.02", "--yes"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "jobs/2\n");
  EXPECT_THAT(result.err, HasSubstr("FIELD             jobs/1  clone\n"
                                    "optimizer.sgd.lr  0.1     0.02\n"));
  const CommandResult diff = runner_.Run({"diff", "@~1", "last"});
  EXPECT_EQ(diff.out, "FIELD             jobs/1  jobs/2\noptimizer.sgd.lr  0.1     0.02\n");
}

TEST_F(Clone, AsksOnATerminalOnly) {
  const CommandResult refused = runner_.Run({"clone", "1"}, "n\n");
  EXPECT_EQ(refused.exit_code, 0);
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(refused.err, HasSubstr("submit it? [Y/n]"));
  const CommandResult accepted = runner_.Run({"clone", "1"}, "\n");
  EXPECT_EQ(accepted.out, "jobs/2\n");
  const CommandResult script = runner_.Run({"clone", "1"});
  EXPECT_EQ(script.out, "jobs/3\n");
  EXPECT_THAT(script.err, Not(HasSubstr("[Y/n]")));
}

TEST_F(Clone, ADryRunStoresNothing) {
  const CommandResult result = runner_.Run({"clone", "1", "--devices", "4", "--dry-run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("devices.count  1       4\n"));
  EXPECT_EQ(runner_.Run({"ls", "-o", "name"}).out, "jobs/1\n");
}

TEST_F(Clone, AChangeThatIsNoneIsRefusedWithTheNearestField) {
  const CommandResult result = runner_.Run({"clone", "1", "--set", "train.epoch=2", "--yes"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("did you mean 'epochs'?"));
}

}  // namespace
}  // namespace trainyard::testing
