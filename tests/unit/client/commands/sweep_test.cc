// Tests the verbs of sweeps, against the fake server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "nlohmann/json.hpp"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kOrdinarySpec[] =
    "name: small\nmodel: {mlp: {}}\ndata: {dataset: glyphs}\ntrain: {epochs: 1}\n"
    "optimizer: {sgd: {lr: 0.1}}\n";
constexpr char kSweepSection[] =
    "sweep:\n  parameters:\n    optimizer.sgd.lr: log(1e-4, 1)\n    model.mlp.hidden: [[32], "
    "[64]]\n"
    "  maximize: test.accuracy\n  search: asha\n  trials: 4\n";

// A sweep of three trials, of which the second is the best.
v1::Sweep SmallSweep() {
  v1::Sweep sweep;
  sweep.set_title("rates");
  sweep.set_user("anna");
  sweep.set_state(v1::SWEEP_STATE_RUNNING);
  v1::SweepSpec& spec = *sweep.mutable_spec()->mutable_sweep();
  (*spec.mutable_parameters())["optimizer.sgd.lr"] = "log(1e-4, 1)";
  spec.set_maximize("test.accuracy");
  spec.set_search(v1::SWEEP_SEARCH_ASHA);
  sweep.set_trials_total(4);
  sweep.set_trials_begun(3);
  sweep.set_trials_ended(1);
  sweep.add_rungs(0.25);
  sweep.add_rungs(1);
  const double rates[] = {0.001, 0.0316227766, 0.9};
  const double values[] = {0.5, 0.91234567, 0.1};
  for (int i = 0; i < 3; ++i) {
    v1::SweepTrial& trial = *sweep.add_trials();
    trial.set_index(i);
    trial.set_state(i == 1 ? v1::TRIAL_STATE_SUCCEEDED : v1::TRIAL_STATE_STOPPED);
    (*trial.mutable_values())["optimizer.sgd.lr"] = absl::StrCat(rates[i]);
    trial.set_job(absl::StrCat("jobs/", 11 + i));
    trial.set_rung(i == 1 ? 1 : 0);
    trial.add_reports()->set_rung(0);
    trial.set_value(values[i]);
    trial.set_step(300);
  }
  sweep.set_best_trial(1);
  sweep.set_best_value(values[1]);
  v1::SweepDecision& decision = *sweep.add_decisions();
  decision.set_sequence(1);
  decision.mutable_time()->set_seconds(1764302400);
  decision.set_text("trial 1 goes on to rung 1: it is 1 of the best 1 of 3");
  return sweep;
}

void End(v1::Sweep& sweep, v1::SweepState state) {
  sweep.set_state(state);
  sweep.set_reason("all its trials have ended");
}

class SweepVerbs : public ::testing::Test {
 protected:
  FakeServer server_;
  CommandRunner runner_{server_.address()};
  const std::string plain_ = runner_.home.Write("job.yaml", kOrdinarySpec);
  const std::string sweep_ =
      runner_.home.Write("sweep.yaml", absl::StrCat(kOrdinarySpec, kSweepSection));
};

TEST_F(SweepVerbs, RunBeginsTheSweepOfAFileAndDetaches) {
  const CommandResult result = runner_.Run({"sweep", "run", sweep_, "--detach"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "sweeps/1\n");
  EXPECT_THAT(result.err, HasSubstr("trainyard sweep show 1 -f follows it"));
  const v1::CreateSweepRequest request = server_.sweeps().last_create();
  EXPECT_EQ(request.request_id().size(), 36u);
  EXPECT_EQ(request.spec().sweep().parameters().at("optimizer.sgd.lr"), "log(1e-4, 1)");
  EXPECT_EQ(request.spec().sweep().parameters().at("model.mlp.hidden"), "[[32],[64]]");
  EXPECT_EQ(request.spec().sweep().search(), v1::SWEEP_SEARCH_ASHA);
}

TEST_F(SweepVerbs, FlagsMakeASweepOfAnOrdinarySpec) {
  const CommandResult result = runner_.Run({"sweep",
                                            "run",
                                            plain_,
                                            "--sweep",
                                            "optimizer.sgd.lr=log(1e-4,1)",
                                            "--sweep",
                                            "train.global_batch=[32, 64]",
                                            "--minimize",
                                            "test.loss",
                                            "--search",
                                            "random",
                                            "--trials",
                                            "8",
                                            "--concurrent",
                                            "2",
                                            "--seed",
                                            "5",
                                            "--budget",
                                            "10h",
                                            "--target",
                                            "0.25",
                                            "--patience",
                                            "4",
                                            "--set",
                                            "train.epochs=3",
                                            "--devices",
                                            "2",
                                            "--name",
                                            "mine",
                                            "--detach"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const v1::JobSpec spec = server_.sweeps().last_create().spec();
  const v1::SweepSpec& sweep = spec.sweep();
  EXPECT_EQ(sweep.parameters().at("optimizer.sgd.lr"), "log(1e-4,1)");
  EXPECT_EQ(sweep.parameters().at("train.global_batch"), "[32, 64]");
  EXPECT_EQ(sweep.minimize(), "test.loss");
  EXPECT_EQ(sweep.search(), v1::SWEEP_SEARCH_RANDOM);
  EXPECT_EQ(sweep.trials(), 8);
  EXPECT_EQ(sweep.concurrent(), 2);
  EXPECT_EQ(sweep.seed(), 5u);
  EXPECT_EQ(sweep.budget().seconds(), 36'000);
  EXPECT_EQ(sweep.target(), 0.25);
  EXPECT_EQ(sweep.patience(), 4);
  EXPECT_EQ(spec.train().epochs(), 3);
  EXPECT_EQ(spec.devices().count(), 2);
  EXPECT_EQ(spec.name(), "mine");
}

TEST_F(SweepVerbs, FlagsOverrideTheFile) {
  const CommandResult result =
      runner_.Run({"sweep", "run", sweep_, "--minimize", "test.loss", "--search", "random",
                   "--sweep", "optimizer.sgd.lr=[0.1, 0.2]", "--detach"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const v1::SweepSpec sweep = server_.sweeps().last_create().spec().sweep();
  EXPECT_FALSE(sweep.has_maximize());
  EXPECT_EQ(sweep.minimize(), "test.loss");
  EXPECT_EQ(sweep.search(), v1::SWEEP_SEARCH_RANDOM);
  EXPECT_EQ(sweep.parameters().at("optimizer.sgd.lr"), "[0.1, 0.2]");
  EXPECT_EQ(sweep.parameters().at("model.mlp.hidden"), "[[32],[64]]");
}

TEST_F(SweepVerbs, ACommandIsSwept) {
  const CommandResult result = runner_.Run(
      {"sweep", "run", "--sweep", "program.params.lr=log(1e-4, 1)", "--minimize", "loss",
       "--trials", "4", "--detach", "--", "python3", "train.py", "--lr", "{lr}"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const v1::JobSpec spec = server_.sweeps().last_create().spec();
  EXPECT_THAT(spec.program().command(),
              ::testing::ElementsAre("python3", "train.py", "--lr", "{lr}"));
  EXPECT_EQ(spec.sweep().parameters().at("program.params.lr"), "log(1e-4, 1)");
}

TEST_F(SweepVerbs, TheCodeOfAProgramTravels) {
  const std::string folder = runner_.home.File("code");
  ASSERT_TRUE(MakeDirectories(folder).ok());
  runner_.home.Write("code/train.py", "print(1)\n");
  const CommandResult result = runner_.Run(
      {"sweep", "run", "--sweep", "program.params.lr=[1, 2]", "--minimize", "loss", "--search",
       "grid", "--code", folder, "--detach", "--", "python3", "train.py", "{lr}"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(server_.uploads(), 1);
  EXPECT_THAT(server_.sweeps().last_create().spec().program().code(), Not(HasSubstr(folder)));
}

TEST_F(SweepVerbs, MistakesAreShownAtTheirPlaces) {
  server_.sweeps().RefuseNextCreate(
      InvalidFields({{"spec.sweep.parameters.optimizer.sgd.lr", "is too wide"}}));
  const CommandResult in_file = runner_.Run({"sweep", "run", sweep_});
  EXPECT_EQ(in_file.exit_code, 2);
  EXPECT_THAT(in_file.out, IsEmpty());
  EXPECT_THAT(in_file.err, AllOf(HasSubstr("sweep.yaml:8:23: sweep.parameters.optimizer.sgd.lr: is "
                                           "too wide\n  8 |     optimizer.sgd.lr: log(1e-4, 1)"),
                                 HasSubstr("nothing was begun")));
  server_.sweeps().RefuseNextCreate(
      InvalidFields({{"spec.sweep.parameters.optimizer.sgd.lr", "is too wide"}}));
  const CommandResult in_flag =
      runner_.Run({"sweep", "run", plain_, "--sweep", "optimizer.sgd.lr=log(1e-9,1)", "--maximize",
                   "test.accuracy", "--trials", "4"});
  EXPECT_EQ(in_flag.exit_code, 2);
  EXPECT_THAT(in_flag.err,
              HasSubstr("command line: sweep.parameters.optimizer.sgd.lr: is too wide"));
}

TEST_F(SweepVerbs, MistakesOfUseSayWhatToWrite) {
  const auto told = [this](const std::vector<std::string>& args) {
    const CommandResult result = runner_.Run(args);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.out, IsEmpty());
    return result.err;
  };
  EXPECT_THAT(told({"sweep", "run", plain_}), HasSubstr("has no `sweep`"));
  EXPECT_THAT(told({"sweep", "run", plain_, "--sweep", "optimizer.sgd.lr"}),
              HasSubstr("has no PATH=DISTRIBUTION"));
  EXPECT_THAT(
      told({"sweep", "run", plain_, "--sweep", "a=[1, 2]", "--maximize", "b", "--minimize", "c"}),
      HasSubstr("--minimize"));
  EXPECT_THAT(told({"sweep", "run"}), HasSubstr("give one spec"));
  EXPECT_THAT(told({"sweep", "run", plain_, "--", "true"}), HasSubstr("give one spec"));
  EXPECT_THAT(told({"sweep", "run", plain_, "--env", "A=b"}), HasSubstr("--set program.env"));
  EXPECT_THAT(told({"sweep", "run", plain_, "--sweep", "optimizer.sgd.lr=[0.1]", "--trials", "2"}),
              HasSubstr("maximize"));
}

TEST_F(SweepVerbs, ADryRunShowsTheValuesOfTheFirstTrials) {
  const CommandResult result = runner_.Run({"sweep", "run", sweep_, "--dry-run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(server_.sweeps().last_create().validate_only());
  EXPECT_EQ(result.out,
            "TRIAL   HIDDEN       LR\n    0  0.01235  0.01235\n    1    1.012    1.012\n");
  EXPECT_THAT(result.err, HasSubstr("the first 2 of 4 trials, 2 at a time; nothing was begun"));
  EXPECT_THAT(runner_.Run({"sweep", "ls", "-o", "name"}).out, IsEmpty());
}

TEST_F(SweepVerbs, RunFollowsToTheEnd) {
  server_.sweeps().ChangeOnGet([](v1::Sweep& sweep) {
    const std::string name = sweep.name();
    sweep = SmallSweep();
    sweep.set_name(name);
    End(sweep, v1::SWEEP_STATE_SUCCEEDED);
  });
  const CommandResult result = runner_.Run({"sweep", "run", sweep_});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "sweeps/1\n");
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("trial 1 goes on to rung 1"), HasSubstr("SUCCEEDED"),
                    HasSubstr("rung 0  1/4 of the training"), HasSubstr("trainyard sweep best 1")));
}

TEST_F(SweepVerbs, ASweepThatFailsEndsWithEight) {
  server_.sweeps().ChangeOnGet([](v1::Sweep& sweep) {
    End(sweep, v1::SWEEP_STATE_FAILED);
    sweep.set_reason("no trial has told a value of test.accuracy");
  });
  const CommandResult result = runner_.Run({"sweep", "run", sweep_});
  EXPECT_EQ(result.exit_code, 8);
  EXPECT_THAT(result.err, AllOf(HasSubstr("no trial has told a value"), HasSubstr("--log")));
}

TEST_F(SweepVerbs, TheTableIsRedrawnOnATerminal) {
  runner_.terminal.err_is_terminal = true;
  runner_.terminal.width = 120;
  server_.sweeps().Add(SmallSweep());
  server_.sweeps().ChangeOnGet([](v1::Sweep&) {});
  server_.sweeps().ChangeOnGet([](v1::Sweep& sweep) { End(sweep, v1::SWEEP_STATE_STOPPED); });
  const CommandResult result = runner_.Run({"sweep", "show", "last", "-f"});
  EXPECT_EQ(result.exit_code, 8) << result.err;
  // The second picture stands in the place of the first, and both are gone at the end.
  EXPECT_THAT(result.err, AllOf(HasSubstr("RUNNING"), HasSubstr("\x1b[8A\x1b[J")));
  EXPECT_THAT(result.err, Not(HasSubstr("goes on to rung 1")));
  EXPECT_THAT(result.out, AllOf(HasSubstr("STOPPED"), HasSubstr("0.9123")));
}

TEST_F(SweepVerbs, CtrlCStopsTheFollowingAndNotTheSweep) {
  server_.sweeps().ChangeOnGet([this](v1::Sweep&) { runner_.interrupt.Trigger(); });
  const CommandResult result = runner_.Run({"sweep", "run", sweep_});
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("sweeps/1 continues"), HasSubstr("trainyard sweep show 1 -f"),
                    HasSubstr("trainyard sweep stop 1")));
  runner_.interrupt.Rearm();
  EXPECT_THAT(runner_.Run({"sweep", "ls"}).out, HasSubstr("RUNNING"));
}

TEST_F(SweepVerbs, LsShowsTheBestValueAndItsJob) {
  EXPECT_THAT(runner_.Run({"sweep", "ls"}).err, HasSubstr("no sweeps; `trainyard sweep run"));
  server_.sweeps().Add(SmallSweep());
  v1::Sweep fresh = SmallSweep();
  fresh.set_user("ben");
  fresh.clear_trials();
  fresh.set_best_trial(-1);
  server_.sweeps().Add(fresh);
  const CommandResult result = runner_.Run({"sweep", "ls"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("SWEEP  NAME   USER  SEARCH  STATE    BEGUN  ENDED  TRIALS    "
                                    "BEST  JOB  DEVICE TIME"));
  EXPECT_THAT(result.out, HasSubstr("    1  rates  anna  asha    RUNNING      3      1       4  "
                                    "0.9123   12"));
  EXPECT_THAT(result.out, HasSubstr("    2  rates  ben   asha    RUNNING      3      1       4     "
                                    "  -    -"));
  EXPECT_EQ(runner_.Run({"sweep", "ls", "-o", "name"}).out, "sweeps/2\nsweeps/1\n");
  EXPECT_EQ(runner_.Run({"sweep", "ls", "--user", "anna", "-o", "name"}).out, "sweeps/1\n");
  const auto json = nlohmann::json::parse(runner_.Run({"sweep", "ls", "-o", "json"}).out);
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[1]["best_trial"], 1);
  EXPECT_EQ(json[1]["spec"]["sweep"]["search"], "asha");
  const CommandResult one = runner_.Run({"sweep", "ls", "--limit", "1", "-o", "name"});
  EXPECT_EQ(one.out, "sweeps/2\n");
  EXPECT_THAT(one.err, HasSubstr("--limit N lists more"));
}

TEST_F(SweepVerbs, ShowPrintsTheTrialsTheBestFirst) {
  server_.sweeps().Add(SmallSweep());
  const CommandResult result = runner_.Run({"sweep", "show", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("objective     the largest test.accuracy\n"),
                                HasSubstr("parameters    optimizer.sgd.lr = log(1e-4, 1)\n"),
                                HasSubstr("best          0.9123 by trial 1, jobs/12\n"),
                                HasSubstr("TRIAL       LR  STATE      RUNG  TEST.ACCURACY  STEP  "
                                          "JOB\n    1  0.03162  SUCCEEDED     1         0.9123   "
                                          "300   12\n    0    0.001  STOPPED       0            "
                                          "0.5   300   11\n")));
  EXPECT_EQ(runner_.Run({"sweep", "show", "sweeps/1"}).out, result.out);
  EXPECT_EQ(runner_.Run({"sweep", "show", "last"}).out, result.out);
  const auto json = nlohmann::json::parse(runner_.Run({"sweep", "show", "1", "-o", "json"}).out);
  EXPECT_EQ(json["trials"].size(), 3u);
  EXPECT_EQ(json["trials"][1]["values"]["optimizer.sgd.lr"], "0.0316228");
}

TEST_F(SweepVerbs, ShowPrintsTheDecisions) {
  server_.sweeps().Add(SmallSweep());
  const std::string line =
      "2025-11-28 04:00:00 UTC  trial 1 goes on to rung 1: it is 1 of the best 1 of 3\n";
  EXPECT_EQ(runner_.Run({"sweep", "show", "1", "--log"}).out, line);
  server_.sweeps().ChangeOnGet([](v1::Sweep&) {});
  server_.sweeps().ChangeOnGet([](v1::Sweep& sweep) { End(sweep, v1::SWEEP_STATE_SUCCEEDED); });
  const CommandResult followed = runner_.Run({"sweep", "show", "1", "--log", "-f"});
  EXPECT_EQ(followed.exit_code, 0) << followed.err;
  EXPECT_EQ(followed.out, line) << "each is told once";
}

TEST_F(SweepVerbs, ShowWritesAPicture) {
  server_.sweeps().Add(SmallSweep());
  const std::string path = runner_.home.File("trials.svg");
  const CommandResult result = runner_.Run({"sweep", "show", "1", "--svg", path});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(*ReadFile(path, 1 << 20), HasSubstr("<svg xmlns"));
  EXPECT_EQ(runner_.Run({"sweep", "show", "1", "--svg", "-"}).out, *ReadFile(path, 1 << 20));
}

TEST_F(SweepVerbs, BestPrintsTheValuesAndWhatComesNext) {
  server_.sweeps().Add(SmallSweep());
  const CommandResult result = runner_.Run({"sweep", "best", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "best              trial 1 of sweeps/1\njob               jobs/12\n"
            "test.accuracy     0.9123 at step 300\noptimizer.sgd.lr  0.0316228\n");
  EXPECT_THAT(result.err, AllOf(HasSubstr("trainyard specs save jobs/12 NAME"),
                                HasSubstr("trainyard clone 12")));
  EXPECT_THAT(runner_.Run({"sweep", "best", "1", "-o", "yaml"}).out, HasSubstr("job: jobs/12\n"));
  EXPECT_EQ(runner_.Run({"sweep", "best", "1", "-o", "name"}).out, "jobs/12\n");
}

TEST_F(SweepVerbs, BestPrintsTheSpecOfItsJob) {
  v1::Sweep sweep = SmallSweep();
  sweep.mutable_trials(1)->set_job(server_.AddJob("winner", v1::JOB_STATE_SUCCEEDED));
  server_.sweeps().Add(sweep);
  EXPECT_THAT(runner_.Run({"sweep", "best", "1", "--spec"}).out, HasSubstr("name: winner\n"));
}

TEST_F(SweepVerbs, ThereMayBeNoBestTrialYet) {
  v1::Sweep sweep = SmallSweep();
  sweep.clear_trials();
  sweep.set_best_trial(-1);
  server_.sweeps().Add(sweep);
  const CommandResult result = runner_.Run({"sweep", "best", "last"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("no trial of sweeps/1 has told a value of test.accuracy yet"));
}

TEST_F(SweepVerbs, StopResumeAndRm) {
  server_.sweeps().Add(SmallSweep());
  const CommandResult stopped = runner_.Run({"sweep", "stop", "1"});
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_FALSE(server_.sweeps().last_stop().cancel());
  EXPECT_THAT(stopped.err, AllOf(HasSubstr("sweeps/1 is STOPPED; its trials are suspended"),
                                 HasSubstr("`trainyard sweep resume 1`")));
  const CommandResult resumed = runner_.Run({"sweep", "resume", "sweeps/1", "--failed"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(server_.sweeps().last_resume().retry_failed());
  EXPECT_THAT(resumed.err, HasSubstr("sweeps/1 is RUNNING; trainyard sweep show 1 -f follows it"));
  const CommandResult cancelled = runner_.Run({"sweep", "stop", "last", "--cancel", "-o", "name"});
  EXPECT_TRUE(server_.sweeps().last_stop().cancel());
  EXPECT_EQ(cancelled.out, "sweeps/1\n");
  EXPECT_THAT(runner_.Run({"sweep", "rm", "1"}, "n\n").err, HasSubstr("nothing was deleted"));
  EXPECT_THAT(runner_.Run({"sweep", "rm", "1"}).err, HasSubstr("deleted sweeps/1; its jobs stay"));
  EXPECT_EQ(runner_.Run({"sweep", "show", "1"}).exit_code, 3);
}

TEST_F(SweepVerbs, WordsThatNameNoSweepAreRefused) {
  const CommandResult unknown = runner_.Run({"sweep", "show", "7"});
  EXPECT_EQ(unknown.exit_code, 3);
  EXPECT_THAT(unknown.err, HasSubstr("there is no sweep 'sweeps/7'"));
  EXPECT_THAT(runner_.Run({"sweep", "stop", "last"}).err, HasSubstr("there is no sweep yet"));
  for (const char* word : {"jobs/1", "0", "-1", "rates", "sweeps/"}) {
    const CommandResult result = runner_.Run({"sweep", "best", word});
    EXPECT_EQ(result.exit_code, 2) << word;
  }
}

TEST_F(SweepVerbs, SubmitSendsASpecWithASweepAndTellsTheRefusal) {
  server_.RefuseNextCreate(InvalidFields({{"spec.sweep", "is for `trainyard sweep run`"}}));
  const CommandResult result = runner_.Run({"submit", sweep_});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("sweep.yaml:6:1: sweep: is for `trainyard sweep run`"));
}

}  // namespace
}  // namespace trainyard::testing
