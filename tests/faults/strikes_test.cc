// Kills and stops every process at random moments, and keeps server and worker away for a while. In
// the end the job shows no trace of it. TRAINYARD_SEED draws other faults.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/files.h"
#include "tests/faults/pause.h"
#include "tests/faults/report.h"
#include "tests/faults/witness.h"
#include "tests/integration/traces.h"
#include "tests/integration/yard.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::trainyard::v1::Job;

constexpr int kStepsOfEpoch = 80;
constexpr int kBatch = 16;

// More replicas than ranks, so that they can move from rank to rank and leave no trace. The steps
// are short: what counts is how many there are, and where among them something strikes.
std::string LongSpec(const std::string& name, int devices, int epochs,
                     const std::string& extra = "") {
  return absl::StrReplaceAll(
      SmallSpec(name, devices, epochs, kStepsOfEpoch * kBatch,
                absl::StrCat("max_retries: 100\ncheckpoint: {every: 20 steps}\n", extra)),
      {{"global_batch: 50",
        absl::StrCat("global_batch: ", kBatch, ", replicas: 8, reproducibility: bitwise")},
       {"test_size: 500", "test_size: 100"},
       {"channels: [16, 32]", "channels: [4, 8]"}});
}

uint64_t Seed() {
  const char* given = std::getenv("TRAINYARD_SEED");
  uint64_t seed = 0;
  return given != nullptr && absl::SimpleAtoi(given, &seed) ? seed : 50;
}

// A round of strikes: each victim is killed, and some are only stopped.
constexpr int kStopsOfRound = 2;
constexpr int kStrikesOfRound = 8;

// Strikes a job's ranks, their supervisor, the worker's daemon and the server.
class Striker {
 public:
  explicit Striker(Yard& yard) : yard_(yard), draws_(Seed()) {}

  // The victims are those of this job from now on.
  void Aim(const std::string& job) {
    job_ = job;
    attempts_ended_ = 0;
  }

  // Returns a number between the two, both included.
  int64_t Draw(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(draws_() % static_cast<uint64_t>(high - low + 1));
  }

  // Returns false if the job has ended before it could be struck.
  bool Strike() {
    // The step may be one that an earlier attempt had reached, while this one still starts.
    bool has_ended = false;
    EXPECT_TRUE(yard_.WaitForJob(job_, [&](const Job& seen) {
      attempt_ = seen.attempt();
      gang_ = yard_.SupervisorRecord(yard_.RunDir(job_, attempt_));
      has_ended = seen.state() == v1::JOB_STATE_SUCCEEDED;
      return has_ended || gang_.contains("ranks");
    })) << gang_;
    if (has_ended || !gang_.contains("ranks")) return false;
    const Card card = DrawCard();
    if (card.victim <= 2) {
      if (!StrikeGang(card)) {
        cards_.push_back(card);
        return false;
      }
    } else {
      StrikeDaemons(card);
    }
    static const char* const kNames[] = {"a rank",     "a rank",     "the supervisor",
                                         "the worker", "the server", "server and worker"};
    ++struck_[absl::StrCat(card.only_stops ? "SIGSTOP of " : "SIGKILL of ", kNames[card.victim])];
    return true;
  }

  // The attempts of the job that strikes have ended.
  int attempts_ended() const { return attempts_ended_; }
  const std::map<std::string, int>& struck() const { return struck_; }

 private:
  // The victims are two ranks, the supervisor, the worker, the server, and the last two together.
  struct Card {
    int victim;
    bool only_stops;
  };
  static constexpr int kVictims = 6;

  // Ranks give up a collective after ten seconds, and a worker its lease after fifteen.
  absl::Duration DrawPause() { return absl::Milliseconds(Draw(50, Scaled(500, 5000))); }

  // Each victim is killed once before one is killed again, and some are only stopped.
  Card DrawCard() {
    if (cards_.empty()) {
      for (int victim = 0; victim < kVictims; ++victim) cards_.push_back({victim, false});
      for (int i = 0; i < kStopsOfRound; ++i) {
        cards_.push_back({static_cast<int>(Draw(0, kVictims - 1)), true});
      }
      std::shuffle(cards_.begin(), cards_.end(), draws_);
    }
    const Card card = cards_.back();
    cards_.pop_back();
    return card;
  }

  // Returns false if the job ended by itself just before.
  bool StrikeGang(const Card& card) {
    const nlohmann::json& process =
        card.victim == 2 ? gang_ : gang_["ranks"][static_cast<size_t>(card.victim)];
    const auto pid = process["pid"].get<pid_t>();
    if (card.only_stops) {
      kill(pid, SIGSTOP);
      Pause(DrawPause());
      kill(pid, SIGCONT);
      return true;
    }
    kill(pid, SIGKILL);
    v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
    EXPECT_TRUE(yard_.WaitForJob(job_, [&](const Job& seen) {
      state = seen.state();
      return state == v1::JOB_STATE_QUEUED || state == v1::JOB_STATE_SUCCEEDED ||
             seen.attempt() > attempt_;
    }));
    if (state == v1::JOB_STATE_SUCCEEDED) return false;
    ++attempts_ended_;
    if (yard_.GetJob(job_).attempt() > attempt_) return true;
    // Acts like an operator who does not want to wait for the pause before the next attempt.
    EXPECT_EQ(yard_.Cli({"suspend", job_}).exit_code, 0);
    EXPECT_EQ(yard_.Cli({"resume", job_}).exit_code, 0);
    return true;
  }

  void StrikeDaemons(const Card& card) {
    const bool server = card.victim != 3;
    const bool worker = card.victim != 4;
    if (card.only_stops) {
      for (const int signal : {SIGSTOP, SIGCONT}) {
        if (server) yard_.server()->Signal(signal);
        if (worker) yard_.worker()->Signal(signal);
        if (signal == SIGSTOP) Pause(DrawPause());
      }
      return;
    }
    if (server) yard_.KillServer();
    if (worker) yard_.KillWorker();
    Pause(DrawPause());
    if (worker) yard_.StartWorker();
    if (server) yard_.StartServer();
  }

  Yard& yard_;
  std::string job_;
  std::mt19937_64 draws_;
  int attempt_ = 0;
  nlohmann::json gang_;
  std::vector<Card> cards_;
  int attempts_ended_ = 0;
  std::map<std::string, int> struck_;
};

Yard::Options With(const Witness& witness, int devices = 2) {
  Yard::Options options;
  options.cpu_devices = devices;
  options.worker_flags = {"--share_cpus", "--trainer", witness.trainer()};
  return options;
}

TEST(Strikes, FaultsAtRandomMomentsLeaveNoTraceInTheEnd) {
  FaultRow row({.fault = "a process is killed or stopped",
                .injection = "SIGKILL or SIGSTOP of server, worker, supervisor or rank, drawn at "
                             "random, while two ranks train",
                .expectation = "no step lost, no point doubled, nothing run twice, weights and "
                               "losses of an undisturbed run to the bit"});
  const int strikes = kStrikesOfRound * Scaled(1, 8);
  constexpr int kStepsBetween = 60;
  constexpr int kEpochs = 10;
  constexpr int kSteps = kEpochs * kStepsOfEpoch;
  const Witness witness;
  Yard yard(With(witness));
  yard.Start();
  const std::string plain = yard.Submit(LongSpec("plain", 2, kEpochs));
  ASSERT_EQ(yard.WaitForEnd(plain).state(), v1::JOB_STATE_SUCCEEDED);
  const Trace undisturbed = TraceOf(yard, plain);
  Striker striker(yard);
  int done = 0;
  int attempts_ended = 0;
  // The number of strikes that a job takes depends on the machine.
  while (done < strikes && !HasFailure()) {
    const std::string job = yard.Submit(LongSpec("struck", 2, kEpochs));
    striker.Aim(job);
    for (int i = 0; done < strikes; ++i) {
      const int64_t step = i * kStepsBetween + striker.Draw(1, kStepsBetween / 2);
      if (!yard.WaitForStep(job, step) || !striker.Strike()) break;
      ++done;
    }
    const Job ended = yard.WaitForEnd(job);
    ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();
    EXPECT_EQ(ended.attempt(), 1 + striker.attempts_ended());
    attempts_ended += striker.attempts_ended();
    const Trace trace = TraceOf(yard, job);
    ExpectNoTrace(trace, undisturbed, kSteps);
    row.Count("jobs", 1);
    row.Count("attempts", ended.attempt());
    row.Count("steps", kSteps);
    row.Count("steps lost", kSteps - static_cast<int64_t>(trace.losses.size()));
    row.Count("points doubled", trace.doubled);
    row.Count("values that differ", trace.different);
  }
  EXPECT_EQ(done, strikes);
  EXPECT_GE(attempts_ended, 3);
  EXPECT_EQ(witness.StartedTwice(), 0);
  EXPECT_EQ(witness.Overlaps(), 0);
  row.Count("ranks that overlapped", witness.Overlaps());
  for (const auto& [what, times] : striker.struck()) row.Count(what, times);
  row.Survived();
}

TEST(Strikes, OutagesOfTheDaemonsCostARunningJobNothing) {
  FaultRow row({.fault = "the server, the worker, or both are away",
                .injection = "SIGKILL, and a start after the outage, while two ranks train",
                .expectation = "the attempt goes on; no step lost, no point doubled"});
  LONG_LANE_ONLY();
  const absl::Duration outage = absl::Minutes(1);
  constexpr int kEpochs = 100'000;  // it trains until it is cancelled
  const Witness witness;
  Yard yard(With(witness));
  yard.Start();
  const std::string job = yard.Submit(LongSpec("long", 2, kEpochs));
  int64_t step = 30;
  for (const bool server : {true, false}) {
    for (const bool worker : {true, false}) {
      if (!server && !worker) continue;
      ASSERT_TRUE(yard.WaitForStep(job, step));
      if (server) yard.KillServer();
      if (worker) yard.KillWorker();
      Pause(outage);
      if (server) yard.StartServer();
      if (worker) yard.StartWorker();
      const int64_t before = step;
      ASSERT_TRUE(yard.WaitForJob(job, [&](const Job& seen) {
        step = seen.progress().step() + 30;
        return seen.progress().step() > before;
      }));
    }
  }
  ASSERT_TRUE(yard.WaitForStep(job, step));
  EXPECT_EQ(yard.Cli({"cancel", job}).exit_code, 0);
  const Job ended = yard.WaitForEnd(job);
  EXPECT_EQ(ended.attempt(), 1);
  std::map<int64_t, int> times;
  for (const v1::MetricPoint& point : yard.Metrics(job, "train.loss")) ++times[point.step()];
  ASSERT_FALSE(times.empty());
  EXPECT_EQ(times.rbegin()->first, static_cast<int64_t>(times.size())) << "steps are missing";
  for (const auto& [number, count] : times) ASSERT_EQ(count, 1) << "step " << number;
  EXPECT_EQ(witness.Starts().size(), 2U);
  row.Count("outages", 3);
  row.Longest("each outage", outage);
  row.Count("steps", static_cast<int64_t>(times.size()));
  row.Count("steps lost", times.rbegin()->first - static_cast<int64_t>(times.size()));
  row.Count("attempts", ended.attempt());
  row.Survived();
}

TEST(Strikes, AWorkerThatIsStoppedPastItsLeaseLosesItsJobToOneOtherOnly) {
  FaultRow row({.fault = "a worker is stopped past its lease",
                .injection = "SIGSTOP of the worker until its job runs elsewhere, then SIGCONT",
                .expectation = "the old ranks are gone before the new ones start; what the old "
                               "worker says counts for nothing"});
  LONG_LANE_ONLY();
  constexpr int kEpochs = 1000;
  const Witness witness;
  Yard yard(With(witness, 1));
  yard.Start();
  const std::string job =
      yard.Submit(LongSpec("fenced", 1, kEpochs, "on_disconnect: {keep: 0s}\n"));
  ASSERT_TRUE(yard.WaitForStep(job, 30));
  yard.StartWorker("beta");
  yard.worker("alpha")->Signal(SIGSTOP);
  ASSERT_TRUE(yard.WaitForJob(job, [](const Job& seen) {
    return seen.attempt() == 2 && seen.state() == v1::JOB_STATE_RUNNING;
  }));
  yard.worker("alpha")->Signal(SIGCONT);
  const std::string old = yard.RunDir(job, 1, "alpha");
  EXPECT_TRUE(WaitUntil([&] { return !FileExists(old); }, kPatience))
      << "the old worker does not give up what it has lost";
  const int64_t step = yard.GetJob(job).progress().step();
  ASSERT_TRUE(yard.WaitForStep(job, step + 100));
  EXPECT_EQ(yard.Cli({"cancel", job}).exit_code, 0);
  const Job ended = yard.WaitForEnd(job);
  EXPECT_EQ(ended.attempt(), 2);
  EXPECT_EQ(witness.StartedTwice(), 0);
  EXPECT_EQ(witness.Overlaps(), 0);
  row.Count("attempts", ended.attempt());
  row.Count("ranks that overlapped", witness.Overlaps());
  row.Survived();
}

}  // namespace
}  // namespace trainyard::testing
