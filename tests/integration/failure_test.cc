// Tests ranks that are stuck, and kills at random moments: a failure is named within half a minute,
// and in the end the result shows no trace of any disturbance. TRAINYARD_SEED draws other kills.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::trainyard::v1::Job;

constexpr int kStepsOfEpoch = 80;

std::string LongSpec(const std::string& name, int epochs, const std::string& extra) {
  // More replicas than ranks, so that they can move from rank to rank and leave no trace.
  return absl::StrReplaceAll(
      SmallSpec(name, /*devices=*/2, epochs, 4000, absl::StrCat("max_retries: 20\n", extra)),
      {{"global_batch: 50", "global_batch: 50, replicas: 8, reproducibility: bitwise"}});
}

std::map<int64_t, double> Curve(Yard& yard, const std::string& job) {
  std::map<int64_t, double> curve;
  for (const v1::MetricPoint& point : yard.Metrics(job, "train.loss")) {
    const auto [known, is_new] = curve.insert({point.step(), point.value()});
    // An attempt resumes from a checkpoint, and repeats the steps after it.
    EXPECT_EQ(known->second, point.value()) << job << ", step " << point.step();
  }
  return curve;
}

// Contents by name of the files of the last checkpoint, but those that name the job.
std::map<std::string, std::string> LastWeights(Yard& yard, const std::string& job) {
  const std::string out = yard.File(absl::StrCat("weights-", job.substr(job.find('/') + 1)));
  EXPECT_EQ(yard.Cli({"checkpoints", "get", job, "-O", out}).exit_code, 0);
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(out)) {
    if (!absl::EndsWith(entry.path().string(), ".safetensors")) continue;
    files[entry.path().filename()] = ReadFile(entry.path().string()).value_or("");
  }
  EXPECT_EQ(files.size(), 2U);
  return files;
}

void ExpectNoTrace(Yard& yard, const std::string& job, const std::string& undisturbed, int epochs) {
  const auto curve = Curve(yard, job);
  EXPECT_EQ(curve.size(), static_cast<size_t>(epochs * kStepsOfEpoch));
  EXPECT_EQ(curve, Curve(yard, undisturbed));
  EXPECT_TRUE(LastWeights(yard, job) == LastWeights(yard, undisturbed)) << "other weights";
}

TEST(Failure, AStoppedRankIsNamedWithItsStackAndTheJobGoesOnWithTheSameCurve) {
  // The rank is stopped neither in an evaluation, nor at a checkpoint or the end, because ranks
  // wait longer there. Ranks report their steps once a second, in which a quiet machine makes a
  // hundred of this network, so several times as many must follow.
  constexpr int kEpochs = 16;
  constexpr int kStep = 620;
  constexpr char kRarely[] = "checkpoint: {every: 600 steps}\nevaluate: {every: 1000 epochs}\n";
  const auto spec = [&](const std::string& name) {
    return absl::StrReplaceAll(LongSpec(name, kEpochs, kRarely),
                               {{"channels: [16, 32]", "channels: [48, 64]"}});
  };
  Yard yard;
  yard.Start();
  const std::string plain = yard.Submit(spec("plain"));
  ASSERT_EQ(yard.WaitForEnd(plain).state(), v1::JOB_STATE_SUCCEEDED);
  const std::string job = yard.Submit(spec("stopped"));
  ASSERT_TRUE(yard.WaitForStep(job, kStep));
  const auto record = yard.SupervisorRecord(yard.RunDir(job, 1));
  ASSERT_TRUE(record.contains("ranks")) << record;
  const absl::Duration begin = Clock::Real()->Uptime();
  kill(record["ranks"][1]["pid"].get<pid_t>(), SIGSTOP);
  // The run directory goes once the server has all of it, so the job tells what became of it.
  v1::Failure failure;
  ASSERT_TRUE(yard.WaitForJob(job, [&failure](const Job& seen) {
    failure = seen.failure();
    return seen.state() == v1::JOB_STATE_QUEUED;
  }));
  const absl::Duration took = Clock::Real()->Uptime() - begin;
  std::printf("named, and all gone, after %.1f s\n", absl::ToDoubleSeconds(took));
  EXPECT_LT(took, absl::Seconds(30));
  EXPECT_EQ(failure.failure_class(), v1::FAILURE_CLASS_TRANSIENT);
  EXPECT_EQ(failure.reason(), "RANK_STUCK");
  EXPECT_THAT(failure.message(),
              ::testing::ContainsRegex("rank 1 is stuck: step [0-9]+, bucket [0-9]+: rank 0: "
                                       "[a-z_]+ [0-9]+: rank 1 did not take part within"));
  EXPECT_THAT(failure.message(), ::testing::HasSubstr("is stopped by a signal (T)"));
  ASSERT_TRUE(yard.WaitForJob(job, [](const Job& seen) { return seen.attempt() == 2; }));
  EXPECT_EQ(yard.WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(yard.GetJob(job).retries(), 1);
  const ProcessResult log = yard.Cli({"logs", absl::StrCat(job, "/attempts/1"), "--rank", "1"});
  EXPECT_TRUE(absl::StrContains(log.out, "==== stacks of rank 1 ")) << log.out << log.err;
  ExpectNoTrace(yard, job, plain, kEpochs);
}

uint64_t Seed() {
  const char* given = std::getenv("TRAINYARD_SEED");
  uint64_t seed = 0;
  return given != nullptr && absl::SimpleAtoi(given, &seed) ? seed : 50;
}

// Ranks, their supervisor and the worker's daemon.
class Killer {
 public:
  Killer(Yard& yard, std::string job) : yard_(yard), job_(std::move(job)), draws_(Seed()) {}

  // Returns a number between the two, both included.
  int64_t Draw(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(draws_() % static_cast<uint64_t>(high - low + 1));
  }

  void KillSomething() {
    // The step may be one that an earlier attempt had reached, while this one still starts.
    int attempt = 0;
    nlohmann::json record;
    ASSERT_TRUE(yard_.WaitForJob(job_, [&](const Job& seen) {
      attempt = seen.attempt();
      record = yard_.SupervisorRecord(yard_.RunDir(job_, attempt));
      return record.contains("ranks");
    })) << record;
    const int64_t victim = Draw(0, 3);
    std::printf("attempt %d: kill %s\n", attempt,
                victim == 3   ? "the worker"
                : victim == 2 ? "the supervisor"
                              : "a rank");
    if (victim == 3) {
      yard_.KillWorker();
      yard_.StartWorker();
      return;
    }
    const nlohmann::json& process =
        victim == 2 ? record : record["ranks"][static_cast<size_t>(victim)];
    kill(process["pid"].get<pid_t>(), SIGKILL);
    ++attempts_ended_;
    ASSERT_TRUE(yard_.WaitForJob(job_, [&](const Job& seen) {
      return seen.state() == v1::JOB_STATE_QUEUED || seen.attempt() > attempt;
    }));
    if (yard_.GetJob(job_).attempt() > attempt) return;
    // Acts like an operator who does not want to wait for the pause before the next attempt.
    EXPECT_EQ(yard_.Cli({"suspend", job_}).exit_code, 0);
    EXPECT_EQ(yard_.Cli({"resume", job_}).exit_code, 0);
  }

  int attempts_ended() const { return attempts_ended_; }

 private:
  Yard& yard_;
  const std::string job_;
  std::mt19937_64 draws_;
  int attempts_ended_ = 0;
};

TEST(Failure, KillsAtRandomMomentsLeaveNoTraceInTheEnd) {
  constexpr int kEpochs = 20;
  constexpr char kOften[] = "checkpoint: {every: 20 steps}\n";
  constexpr int kKills = 6;
  constexpr int64_t kStepsBetween = 100;
  Yard yard;
  yard.Start();
  const std::string plain = yard.Submit(LongSpec("plain", kEpochs, kOften));
  ASSERT_EQ(yard.WaitForEnd(plain).state(), v1::JOB_STATE_SUCCEEDED);
  const std::string job = yard.Submit(LongSpec("struck", kEpochs, kOften));
  Killer killer(yard, job);
  for (int i = 0; i < kKills; ++i) {
    const int64_t step = i * kStepsBetween + killer.Draw(1, kStepsBetween / 2);
    ASSERT_TRUE(yard.WaitForStep(job, step)) << "it ended before it could be disturbed";
    killer.KillSomething();
    if (HasFatalFailure()) return;
  }
  const Job ended = yard.WaitForEnd(job);
  ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();
  EXPECT_EQ(ended.attempt(), 1 + killer.attempts_ended());
  EXPECT_GE(killer.attempts_ended(), 3) << "choose another seed";
  ExpectNoTrace(yard, job, plain, kEpochs);
}

}  // namespace
}  // namespace trainyard::testing
