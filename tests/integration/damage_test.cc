// Tests that a checkpoint which the server's disk has damaged costs its job some steps and nothing
// else: no retry, no worker, and never the job.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "tests/faults/report.h"
#include "tests/integration/yard.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::trainyard::v1::Job;

constexpr char kFault[] = "a checkpoint on the server is damaged";
constexpr char kModel[] = "model.safetensors";
// No retry is granted, so a failure that cost one would end the job.
constexpr char kExtra[] = "checkpoint: {every: 20 steps, keep: {last: 3}}\nmax_retries: 0\n";

class Damage : public ::testing::Test {
 protected:
  Damage() { yard_.Start(); }

  // Trains past some checkpoints and stops. Returns the steps of those that are kept, ascending.
  std::vector<int64_t> TrainAndSuspend(const std::string& job) {
    EXPECT_TRUE(yard_.WaitForStep(job, 70));
    EXPECT_EQ(yard_.Cli({"suspend", job}).exit_code, 0);
    EXPECT_TRUE(yard_.WaitForJob(
        job, [](const Job& seen) { return seen.state() == v1::JOB_STATE_SUSPENDED; }));
    std::vector<int64_t> steps;
    for (const auto& checkpoint : yard_.CliJson({"checkpoints", "ls", job})) {
      steps.push_back(checkpoint.value("step", int64_t{0}));
    }
    EXPECT_GE(steps.size(), 2u);
    return steps;
  }
  void Resume(const std::string& job) { EXPECT_EQ(yard_.Cli({"resume", job}).exit_code, 0); }

  // The file on the server's disk that holds a file of the checkpoint.
  std::string Blob(const std::string& job, int64_t step, const std::string& file) {
    for (const auto& checkpoint : yard_.CliJson({"checkpoints", "ls", job})) {
      if (checkpoint.value("step", int64_t{0}) != step) continue;
      for (const auto& one : checkpoint["files"]) {
        if (one.value("name", "") != file) continue;
        const std::string digits = *HashDigits(one.value("hash", ""));
        return JoinPath(yard_.server_state_dir(),
                        absl::StrCat("blobs/", digits.substr(0, 2), "/", digits));
      }
    }
    ADD_FAILURE() << job << " has no " << file << " of step " << step;
    return "";
  }
  static void FlipABit(const std::string& path) {
    std::string bytes = *ReadFile(path);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    ASSERT_TRUE(ReplaceFile(path, bytes).ok());
  }
  static void CutInHalf(const std::string& path) {
    ASSERT_EQ(truncate(path.c_str(), *FileSize(path) / 2), 0);
  }
  static void Delete(const std::string& path) { ASSERT_EQ(unlink(path.c_str()), 0); }

  std::string History(const std::string& job) { return yard_.Cli({"show", job, "--events"}).out; }
  void ExpectOnlyStepsLost(const std::string& job, int attempts) {
    const Job ended = yard_.WaitForEnd(job);
    EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();
    EXPECT_EQ(ended.attempt(), attempts);
    EXPECT_EQ(ended.retries(), 0);
    EXPECT_THAT(yard_.Cli({"workers", "ls"}).out, Not(HasSubstr("DRAIN")));
  }

  Yard yard_;
};

using DamageOne = std::function<void(const std::string& path)>;

TEST_F(Damage, AJobGoesOnFromTheNewestCheckpointThatIsWhole) {
  FaultRow row({.fault = kFault,
                .injection = "the newest one of a suspended job: a bit, half of a file, a file, "
                             "its state",
                .expectation = "the job goes back to the newest whole one, without a retry"});
  const std::vector<std::tuple<std::string, std::string, DamageOne>> ways = {
      {"flipped", kModel, FlipABit},
      {"cut", kModel, CutInHalf},
      {"deleted", kModel, Delete},
      {"state", "state.json", FlipABit},
  };
  for (const auto& [name, file, damage] : ways) {
    SCOPED_TRACE(name);
    const std::string job = yard_.Submit(SmallSpec(name, 1, 3, 3000, kExtra));
    const std::vector<int64_t> steps = TrainAndSuspend(job);
    const int64_t newest = steps.back();
    const int64_t older = steps[steps.size() - 2];
    damage(Blob(job, newest, file));
    Resume(job);
    ExpectOnlyStepsLost(job, /*attempts=*/3);
    const std::string history = History(job);
    EXPECT_THAT(history, HasSubstr("CHECKPOINT_DAMAGED"));
    EXPECT_THAT(history, HasSubstr(absl::StrCat("checkpoint at step ", newest, ": ", file)));
    EXPECT_THAT(history,
                HasSubstr(absl::StrCat("the job goes back to '", job, "/checkpoints/", older)));
    row.Count("damaged", 1);
    row.Count("retries", yard_.GetJob(job).retries());
  }
  if (!HasFailure()) row.Survived();
}

TEST_F(Damage, AJobWithoutAWholeCheckpointBeginsAgain) {
  FaultRow row({.fault = kFault,
                .injection = "all of a suspended job",
                .expectation = "the job begins again, without a retry"});
  const std::string job = yard_.Submit(SmallSpec("all", 1, 3, 3000, kExtra));
  const std::vector<int64_t> steps = TrainAndSuspend(job);
  for (const int64_t step : steps) FlipABit(Blob(job, step, kModel));
  Resume(job);
  ExpectOnlyStepsLost(job, /*attempts=*/2 + static_cast<int>(steps.size()));
  EXPECT_THAT(History(job), HasSubstr("from the beginning"));
  row.Count("damaged", static_cast<int64_t>(steps.size()));
  row.Count("retries", yard_.GetJob(job).retries());
  if (!HasFailure()) row.Survived();
}

TEST_F(Damage, TheMarkIsShownAndOutlivesTheServer) {
  const std::string job = yard_.Submit(SmallSpec("shown", 1, 3, 3000, kExtra));
  const std::vector<int64_t> steps = TrainAndSuspend(job);
  const int64_t newest = steps.back();
  Delete(Blob(job, newest, kModel));
  const ProcessResult got = yard_.Cli({"checkpoints", "get", job, "-O", yard_.File("out")});
  EXPECT_EQ(got.exit_code, 1);
  EXPECT_THAT(got.err, HasSubstr("is damaged on the server: model.safetensors is missing"));
  EXPECT_THAT(got.err, HasSubstr(absl::StrCat("`trainyard checkpoints get 1/",
                                              steps[steps.size() - 2], "`")));
  yard_.KillServer();
  yard_.StartServer();
  EXPECT_THAT(yard_.Cli({"checkpoints", "ls", job}).out, HasSubstr("model.safetensors is missing"));
  const ProcessResult refused = yard_.Cli({"clone", job, "--from", absl::StrCat(job, "/", newest)});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("whole checkpoints of job 'jobs/1' are at step"));
  // Nobody tries the damaged one again.
  Resume(job);
  ExpectOnlyStepsLost(job, /*attempts=*/2);
}

TEST_F(Damage, AJobThatStartsFromADamagedCheckpointOfAnotherFailsAtOnce) {
  const std::string job = yard_.Submit(SmallSpec("parent", 1, 3, 3000, kExtra));
  const std::vector<int64_t> steps = TrainAndSuspend(job);
  FlipABit(Blob(job, steps.back(), kModel));
  const ProcessResult submitted =
      yard_.Cli({"clone", job, "--from", absl::StrCat(job, "/", steps.back())});
  ASSERT_EQ(submitted.exit_code, 0) << submitted.err;
  const Job ended = yard_.WaitForEnd("jobs/2");
  EXPECT_EQ(ended.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(ended.attempt(), 1);
  EXPECT_EQ(ended.failure().reason(), "CHECKPOINT_DAMAGED");
  EXPECT_THAT(ended.failure().message(),
              HasSubstr("whole checkpoints of job 'jobs/1' are at step"));
}

TEST_F(Damage, AnUploadHealsTheBlobForAllWhoNameIt) {
  const std::string first = yard_.Submit(SmallSpec("first", 1, 1, 1000, kExtra));
  ASSERT_EQ(yard_.WaitForEnd(first).state(), v1::JOB_STATE_SUCCEEDED);
  FlipABit(Blob(first, 20, kModel));
  ASSERT_EQ(yard_.Cli({"checkpoints", "get", "1/20", "-O", yard_.File("one")}).exit_code, 1);
  // A job with the same spec writes the same bytes.
  const std::string second = yard_.Submit(SmallSpec("first", 1, 1, 1000, kExtra));
  ASSERT_EQ(yard_.WaitForEnd(second).state(), v1::JOB_STATE_SUCCEEDED);
  for (const char* job : {"2", "1"}) {
    const ProcessResult got =
        yard_.Cli({"checkpoints", "get", absl::StrCat(job, "/20"), "-O", yard_.File(job)});
    EXPECT_EQ(got.exit_code, 0) << got.err;
  }
  EXPECT_THAT(yard_.Cli({"checkpoints", "ls", "1"}).out, Not(HasSubstr("DAMAGE")));
  EXPECT_THAT(History(first), HasSubstr("checkpoint at step 20 is whole again"));
}

}  // namespace
}  // namespace trainyard::testing
