// Tests submit and clone of one job, against the fake server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

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

TEST_F(Submit, ANameThatMeansAnotherJobIsRefused) {
  for (const char* name : {"12", "1-3", "last"}) {
    const CommandResult result = runner_.Run({"submit", spec_, "--name", name});
    EXPECT_EQ(result.exit_code, 2) << name;
    EXPECT_THAT(result.err, AllOf(HasSubstr("would never name the job"),
                                  HasSubstr(std::string("such as 'job-") + name + "'")));
  }
  EXPECT_EQ(runner_.Run({"submit", spec_, "--name", "3-layers"}).exit_code, 0);
  EXPECT_EQ(runner_.Run({"submit", spec_, "--name", "last-try"}).exit_code, 0);
}

TEST_F(Submit, ACommandIsAJobInThePresentFolder) {
  runner_.surroundings.environment = {"VIRTUAL_ENV=/home/anna/env", "HF_HOME=/models"};
  const CommandResult result =
      runner_.Run({"submit", "--devices", "2", "--env", "HF_HOME", "--env", "A=b=c", "--",
                   "python3", "src/my train.py", "--lr", "{lr}"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const v1::JobSpec spec = server_.last_create().spec();
  EXPECT_EQ(spec.name(), "my_train.py");
  EXPECT_EQ(spec.devices().count(), 2);
  EXPECT_THAT(spec.program().command(),
              ::testing::ElementsAre("python3", "src/my train.py", "--lr", "{lr}"));
  EXPECT_EQ(spec.program().directory(), std::filesystem::current_path());
  EXPECT_EQ(spec.program().environment().venv(), "/home/anna/env");
  EXPECT_EQ(spec.program().env().at("HF_HOME"), "/models");
  EXPECT_EQ(spec.program().env().at("A"), "b=c");
}

TEST_F(Submit, ACommandIsNamedAfterWhatItRuns) {
  runner_.Run({"submit", "--", "/usr/bin/make", "all"});
  EXPECT_EQ(server_.last_create().spec().name(), "make");
  runner_.Run({"submit", "--name", "mine", "--", "_", "x"});
  EXPECT_EQ(server_.last_create().spec().name(), "mine");
  runner_.Run({"submit", "--", "_"});
  EXPECT_EQ(server_.last_create().spec().name(), "program");
}

TEST_F(Submit, MistakesWithACommandSayWhatToDo) {
  const auto told = [this](const std::vector<std::string>& args) {
    const CommandResult result = runner_.Run(args);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.out, IsEmpty());
    return result.err;
  };
  EXPECT_THAT(told({"submit", spec_, "--", "true"}), HasSubstr("give one of them"));
  EXPECT_THAT(told({"submit", "--env", "NO_SUCH", "--", "true"}),
              HasSubstr("write --env NO_SUCH=VALUE"));
  EXPECT_THAT(told({"submit", spec_, "--env", "A=b"}), HasSubstr("--set program.env.NAME=VALUE"));
  EXPECT_THAT(told({"run"}), HasSubstr("a command after '--'"));
  EXPECT_THAT(told({"submit", "--env", "TRAINYARD_JOB=1", "--", "true"}),
              HasSubstr("belongs to Trainyard"));
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

TEST_F(Submit, FlagsSayWhatAProgramHolds) {
  const CommandResult result =
      runner_.Run({"submit", "--devices", "0", "--cpus", "4", "--memory", "2GiB", "--time-limit",
                   "2h", "--idle-limit", "30m", "--isolation", "cgroup", "--outputs", "results/**",
                   "--outputs", "*.csv", "--", "true"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const v1::JobSpec spec = server_.last_create().spec();
  EXPECT_TRUE(spec.devices().has_count());
  EXPECT_EQ(spec.devices().count(), 0);
  EXPECT_EQ(spec.resources().cpus(), 4);
  EXPECT_EQ(spec.resources().memory().bytes(), int64_t{2} << 30);
  EXPECT_EQ(spec.time_limit().seconds(), 7200);
  EXPECT_EQ(spec.idle_limit().seconds(), 1800);
  EXPECT_EQ(spec.program().isolation(), v1::ISOLATION_CGROUP);
  EXPECT_THAT(spec.outputs(), ::testing::ElementsAre("results/**", "*.csv"));
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

TEST_F(Submit, ADryRunIsRefusedAsTheSubmissionWouldBe) {
  const auto refusal = error::CannotRun("it needs 4 devices; the pool has 2");
  server_.RefuseNextCreate(refusal);
  const CommandResult result = runner_.Run({"submit", spec_, "--dry-run", "--devices", "4"});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, HasSubstr("it needs 4 devices; the pool has 2"));
  EXPECT_THAT(result.err, Not(HasSubstr("it would start now")));
  server_.RefuseNextCreate(refusal);
  EXPECT_EQ(runner_.Run({"submit", spec_, "--devices", "4"}).exit_code, 6);
  EXPECT_EQ(runner_.Run({"submit", spec_, "--wait-for-devices", "-q"}).exit_code, 0);
  EXPECT_TRUE(server_.last_create().options().wait_for_devices());
}

TEST_F(Submit, ADryRunChecksWhatStandsBesideTheSpec) {
  EXPECT_EQ(runner_.Run({"submit", spec_, "--dry-run", "--from", "99"}).exit_code, 3);
  server_.AddJob("first", v1::JOB_STATE_SUCCEEDED);
  const CommandResult result = runner_.Run(
      {"submit", spec_, "--dry-run", "--from", "1/600", "--after", "1", "--reservation", "night"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(server_.last_create().from_checkpoint(), "jobs/1/checkpoints/600");
  EXPECT_EQ(server_.last_create().options().after(0), "jobs/1");
  EXPECT_EQ(server_.last_create().options().reservation(), "night");
  EXPECT_EQ(runner_.Run({"submit", spec_, "--dry-run", "--begin", "soon"}).exit_code, 2);
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

TEST_F(Submit, SendsTheMemoryThatTheTrainerPlans) {
  const std::string calls = runner_.home.File("calls");
  const std::string trainer = runner_.home.Write(
      "trainyard-trainer", "#!/bin/sh\necho \"$@\" >> " + calls +
                               "\n[ \"$4\" = need ] || { echo \"fits: $4\"; exit 0; }\n"
                               "echo '{\"host_bytes\": 5000, \"gpu_bytes\": 300}'\n");
  ASSERT_EQ(chmod(trainer.c_str(), 0755), 0);
  v1::Worker worker;
  worker.set_name("workers/lab-1");
  for (const int64_t bytes : {int64_t{1} << 30, int64_t{12} << 30, int64_t{12} << 30}) {
    v1::Device& device = *worker.add_devices();
    device.set_type("cpu");
    device.set_memory_bytes(bytes);
  }
  server_.AddWorker(worker);
  EXPECT_EQ(runner_.Run({"submit", spec_}).exit_code, 0);
  EXPECT_EQ(server_.last_create().options().memory_need().host_bytes(), 5000);
  EXPECT_EQ(server_.last_create().options().memory_need().gpu_bytes(), 300);
  const CommandResult dry = runner_.Run({"submit", spec_, "--dry-run"});
  EXPECT_EQ(dry.exit_code, 0) << dry.err;
  EXPECT_THAT(dry.err, HasSubstr("memory plan, for 2 devices of type cpu with 12 GiB of the pool:\n"
                                 "  fits: 12884901888"));
  // Specs that differ in names and rates alone are planned once.
  const std::string many = runner_.home.Write(
      "many.yaml", std::string(kSubmittedSpec) + "---\n" + kSubmittedSpec + "priority: 2\n");
  ASSERT_TRUE(WriteFileAtomically(calls, "").ok());
  EXPECT_EQ(runner_.Run({"submit", "-f", many}).exit_code, 0);
  EXPECT_EQ(*ReadFile(calls, 1000), "--plan - --format need\n");
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
