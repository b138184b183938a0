// Tests sweeps as their users meet them: trials wait at rungs and go on, on one device too, and a
// server and a worker that are killed in between begin nothing twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

// A sweep over the learning rate; `search` is a part of its `sweep`.
std::string SweepSpec(const std::string& search, int epochs = 9) {
  return absl::StrCat(SmallSpec("look", 1, epochs, 500), R"yaml(evaluate: {every: 1 epoch}
sweep:
  parameters: {optimizer.sgd.lr: "log(1e-3, 0.2)"}
  maximize: test.accuracy
)yaml",
                      search);
}

Yard::Options Devices(int count) {
  Yard::Options options;
  options.cpu_devices = count;
  return options;
}

std::string WriteSpec(const Yard& yard, const std::string& text) {
  const std::string file = yard.File("sweep.yaml");
  EXPECT_TRUE(WriteFileAtomically(file, text).ok());
  return file;
}

// Returns the sweep; nothing while the server does not answer.
nlohmann::json Shown(Yard& yard, const std::string& sweep) {
  const ProcessResult shown = yard.Cli({"sweep", "show", sweep, "-o", "json"});
  return nlohmann::json::parse(shown.out, nullptr, /*allow_exceptions=*/false);
}

bool HasEnded(const nlohmann::json& sweep) {
  return sweep.is_object() && sweep.value("state", "") != "SWEEP_STATE_RUNNING";
}

nlohmann::json WaitForSweep(Yard& yard, const std::string& sweep) {
  nlohmann::json shown;
  EXPECT_TRUE(WaitUntil([&] { return HasEnded(shown = Shown(yard, sweep)); }, kPatience));
  return shown;
}

TEST(Sweep, HalvingWorksOnOneDevice) {
  Yard yard(Devices(1));
  yard.Start();
  const std::string file =
      WriteSpec(yard, SweepSpec("  {search: asha, trials: 9, factor: 3, seed: 2}"));
  ASSERT_NE(yard.Cli({"sweep", "run", file}).exit_code, 0) << "a list of fields is no mapping";
  WriteSpec(yard, SweepSpec("  search: asha\n  trials: 9\n  factor: 3\n  seed: 2\n"));
  const ProcessResult run = yard.Cli({"sweep", "run", file});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const nlohmann::json sweep = yard.CliJson({"sweep", "show", "1"});
  EXPECT_EQ(sweep["state"], "SWEEP_STATE_SUCCEEDED");
  ASSERT_EQ(sweep["trials"].size(), 9U);
  EXPECT_EQ(sweep["rungs"].size(), 3U);
  std::set<std::string> jobs, rates;
  int reached_the_end = 0;
  for (const nlohmann::json& trial : sweep["trials"]) {
    EXPECT_TRUE(jobs.insert(trial["job"].get<std::string>()).second);
    EXPECT_TRUE(rates.insert(trial["values"]["optimizer.sgd.lr"].get<std::string>()).second);
    reached_the_end += trial["state"] == "TRIAL_STATE_SUCCEEDED" ? 1 : 0;
    const v1::Job job = yard.GetJob(trial["job"].get<std::string>());
    EXPECT_EQ(absl::StrCat(job.resolved_spec().optimizer().sgd().lr()),
              absl::StrCat(std::stod(trial["values"]["optimizer.sgd.lr"].get<std::string>())));
    EXPECT_FALSE(job.resolved_spec().has_sweep());
    EXPECT_EQ(job.provenance().trial(), absl::StrCat("sweeps/1/trials/", trial.value("index", 0)));
  }
  EXPECT_GE(reached_the_end, 1);
  EXPECT_LT(reached_the_end, 9);
  EXPECT_EQ(yard.CliJson({"ls", "--all"}).size(), 9U) << "each trial has one job";
  EXPECT_THAT(yard.Cli({"sweep", "best", "last"}).out, HasSubstr("optimizer.sgd.lr"));
  EXPECT_THAT(yard.Cli({"sweep", "ls"}).out, HasSubstr("look"));
  const ProcessResult submitted = yard.Cli({"submit", file});
  EXPECT_NE(submitted.exit_code, 0);
  EXPECT_THAT(submitted.err, HasSubstr("trainyard sweep run"));
}

TEST(Sweep, BeginsNothingTwiceWhateverIsKilled) {
  Yard yard(Devices(2));
  yard.Start();
  const std::string file =
      WriteSpec(yard, SweepSpec("  search: asha\n  trials: 8\n  factor: 2\n  seed: 5\n", 16));
  ASSERT_EQ(yard.Cli({"sweep", "run", file, "--detach"}).exit_code, 0);
  for (size_t round = 0; round < 4; ++round) {
    ASSERT_TRUE(WaitUntil([&] {
      const nlohmann::json shown = Shown(yard, "1");
      return HasEnded(shown) || (shown.contains("trials") && shown["trials"].size() > 2 * round);
    }));
    yard.KillServer();
    if (round == 2) yard.KillWorker();
    yard.StartServer();
    if (round == 2) yard.StartWorker();
  }
  const nlohmann::json sweep = WaitForSweep(yard, "1");
  EXPECT_EQ(sweep["state"], "SWEEP_STATE_SUCCEEDED") << sweep.dump(1);
  EXPECT_EQ(sweep["trials"].size(), 8U);
  EXPECT_EQ(yard.CliJson({"ls", "--all"}).size(), 8U) << "each trial has one job";
  for (const nlohmann::json& trial : sweep["trials"]) {
    EXPECT_FALSE(trial.contains("earlier_jobs")) << trial.dump();
  }
}

TEST(Sweep, StopsGoesOnAndRunsFailedTrialsAgain) {
  Yard yard(Devices(1));
  yard.Start();
  // One trial of three asks for a file that is not there.
  const std::string flag = yard.File("flag");
  const std::string text = absl::StrCat(R"(name: programs
program:
  command: [sh, -c, "test {which} != 1 || test -e )",
                                        flag, R"( || exit 3;
    echo '{\"step\": 1, \"metrics\": {\"score\": {which}}}' >> $TRAINYARD_RUN_DIR/metrics.jsonl; sleep 1"]
  params: {which: 0}
sweep:
  parameters: {program.params.which: [0, 1, 2]}
  maximize: score
  search: grid
)");
  const std::string file = WriteSpec(yard, text);
  ASSERT_EQ(yard.Cli({"sweep", "run", file, "--detach"}).exit_code, 0);
  ASSERT_EQ(yard.Cli({"sweep", "stop", "1"}).exit_code, 0);
  EXPECT_EQ(yard.CliJson({"sweep", "show", "1"})["state"], "SWEEP_STATE_STOPPED");
  EXPECT_NE(yard.Cli({"sweep", "rm", "1"}).exit_code, 0) << "it has not ended";
  ASSERT_EQ(yard.Cli({"sweep", "resume", "1"}).exit_code, 0);
  nlohmann::json sweep = WaitForSweep(yard, "1");
  ASSERT_EQ(sweep["trials"].size(), 3U);
  EXPECT_EQ(sweep["trials"][1]["state"], "TRIAL_STATE_FAILED") << sweep.dump(1);
  EXPECT_EQ(sweep.value("best_trial", 0), 2);
  ASSERT_TRUE(WriteFileAtomically(flag, "").ok());
  ASSERT_EQ(yard.Cli({"sweep", "resume", "1", "--failed"}).exit_code, 0);
  sweep = WaitForSweep(yard, "1");
  EXPECT_EQ(sweep["trials"][1]["state"], "TRIAL_STATE_SUCCEEDED") << sweep.dump(1);
  EXPECT_EQ(sweep["trials"][1]["earlier_jobs"].size(), 1U);
  EXPECT_EQ(yard.CliJson({"ls", "--all"}).size(), 4U) << "only the failed trial ran again";
  ASSERT_EQ(yard.Cli({"sweep", "rm", "1"}).exit_code, 0);
  EXPECT_EQ(yard.Cli({"sweep", "show", "1"}).exit_code, 3);
}

}  // namespace
}  // namespace trainyard::testing
