// Cuts the lines between server, workers and ranks, which live in networks of their own: both ways,
// one way, and on and off. No rank ever runs twice, and all is as before soon after a line is
// whole again.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "tests/faults/pause.h"
#include "tests/faults/report.h"
#include "tests/faults/tunnel.h"
#include "tests/faults/witness.h"
#include "tests/integration/yard.h"
#include "tests/testing/networks.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::trainyard::v1::Job;

constexpr int kServer = 0;  // the host of the server
constexpr int kAlpha = 1;
constexpr int kBeta = 2;
constexpr absl::Duration kLease = absl::Seconds(15);
constexpr int kEndless = 100'000;  // epochs: it trains until it is cancelled

class Partitions : public ::testing::Test {
 protected:
  Partitions() : yard_(Options()) {}

  Yard::Options Options() const {
    Yard::Options options;
    options.cpu_devices = 1;
    options.worker_flags = {"--share_cpus", "--trainer", witness_.trainer()};
    return options;
  }

  // Skips the test if there can be no hosts.
  void StartServer() {
    auto networks = Networks::Make(3);
    if (absl::IsUnavailable(networks.status())) GTEST_SKIP() << networks.status().message();
    ASSERT_TRUE(networks.ok()) << networks.status();
    networks_ = *std::move(networks);
    yard_.StartServer();
  }

  // The worker reaches the server through a tunnel, and other workers over the same line.
  void StartWorker(const std::string& name, int host) {
    const std::string near = yard_.File(name + ".sock");
    auto tunnel = Tunnel::Start(*networks_, host, near, kServer,
                                yard_.address().substr(std::string("unix:").size()));
    ASSERT_TRUE(tunnel.ok()) << tunnel.status();
    tunnels_.push_back(*std::move(tunnel));
    yard_.StartWorker(name, {.network_namespace = networks_->Namespace(host),
                             .flags = {},
                             .server_address = absl::StrCat("unix:", near)});
    ASSERT_TRUE(WaitUntil([&] { return StateOf(name) == "ACTIVE"; }, kPatience));
  }

  std::string StateOf(const std::string& worker) {
    for (const auto& one : yard_.CliJson({"workers", "ls"})) {
      if (one.value("name", "") == "workers/" + worker) {
        return absl::StrReplaceAll(one.value("state", ""), {{"WORKER_STATE_", ""}});
      }
    }
    return "";
  }

  std::string Submit(int ranks, const std::string& extra, int epochs = kEndless) {
    return yard_.Submit(
        absl::StrReplaceAll(SmallSpec("cut", ranks, epochs, 2000,
                                      absl::StrCat("checkpoint: {every: 50 steps}\n", extra)),
                            {{"channels: [16, 32]", "channels: [8, 16]"},
                             {absl::StrCat("devices: ", ranks, "\n"),
                              absl::StrCat("devices: {count: ", ranks,
                                           ", spread: ", ranks > 1 ? "true" : "false", "}\n")}}));
  }

  void Cut(int host, bool is_cut) { ASSERT_TRUE(networks_->SetPlugged(host, !is_cut).ok()); }
  void CutOneWay(int from, int to, bool is_cut) {
    const absl::Status status = networks_->SetOneWay(from, to, is_cut);
    ASSERT_TRUE(status.ok()) << status;
  }

  // After the line is whole, the worker is ACTIVE and reports new steps within a lease.
  void ExpectConvergence(const std::string& worker, const std::string& job) {
    const absl::Duration begin = Clock::Real()->Uptime();
    ASSERT_TRUE(WaitUntil([&] { return StateOf(worker) == "ACTIVE"; }, kPatience));
    const int64_t step = yard_.GetJob(job).progress().step();
    ASSERT_TRUE(
        yard_.WaitForJob(job, [step](const Job& seen) { return seen.progress().step() > step; }));
    healed_in_ = std::max(healed_in_, Clock::Real()->Uptime() - begin);
    EXPECT_LT(healed_in_, kLease);
  }

  // Stops the job, and expects of each attempt that no step is missing or doubled.
  void ExpectWholeSeries(FaultRow& row, const std::string& job, int attempts) {
    EXPECT_EQ(yard_.Cli({"cancel", job}).exit_code, 0);
    EXPECT_EQ(yard_.WaitForEnd(job).attempt(), attempts);
    std::map<int64_t, std::map<int32_t, int>> times;
    for (const v1::MetricPoint& point : yard_.Metrics(job, "train.loss")) {
      ++times[point.step()][point.attempt()];
    }
    ASSERT_FALSE(times.empty());
    EXPECT_EQ(times.rbegin()->first, static_cast<int64_t>(times.size())) << "steps are missing";
    int64_t doubled = 0;
    for (const auto& [step, by_attempt] : times) {
      for (const auto& [attempt, count] : by_attempt) doubled += count - 1;
    }
    EXPECT_EQ(doubled, 0);
    EXPECT_EQ(witness_.StartedTwice(), 0);
    EXPECT_EQ(witness_.Overlaps(), 0);
    row.Count("attempts", attempts);
    row.Count("steps", static_cast<int64_t>(times.size()));
    row.Count("points doubled", doubled);
    row.Count("ranks that overlapped", witness_.Overlaps());
    if (healed_in_ > absl::ZeroDuration()) row.Longest("back after", healed_in_);
    row.Survived();
  }

  // Cuts alpha's line for longer than two leases, which costs it the job: beta continues it.
  void ExpectOneSuccessor(FaultRow& row, const std::function<void(bool is_cut)>& cut) {
    StartServer();
    if (HasFatalFailure() || IsSkipped()) return;
    StartWorker("alpha", kAlpha);
    const std::string job = Submit(1, "on_disconnect: {keep: 0s}\n");
    ASSERT_TRUE(yard_.WaitForStep(job, 60));
    StartWorker("beta", kBeta);
    cut(true);
    ASSERT_TRUE(yard_.WaitForJob(job, [](const Job& seen) {
      return seen.attempt() == 2 && seen.state() == v1::JOB_STATE_RUNNING;
    }));
    cut(false);
    const absl::Duration begin = Clock::Real()->Uptime();
    ASSERT_TRUE(WaitUntil([&] { return StateOf("alpha") == "ACTIVE"; }, 2 * kPatience));
    healed_in_ = Clock::Real()->Uptime() - begin;
    ExpectConvergence("beta", job);
    const std::string old = yard_.RunDir(job, 1, "alpha");
    EXPECT_TRUE(WaitUntil([&] { return !FileExists(old); }, kPatience));
    ExpectWholeSeries(row, job, 2);
  }

  // These are declared before the yard, so that they are destroyed after the processes in it.
  Witness witness_;
  std::unique_ptr<Networks> networks_;
  std::vector<std::unique_ptr<Tunnel>> tunnels_;
  Yard yard_;
  absl::Duration healed_in_;
};

TEST_F(Partitions, AShortCutCostsARunningJobNothing) {
  FaultRow row({.fault = "the line between server and worker",
                .injection = "cut both ways, each way alone, and on and off (keep 10m)",
                .expectation = "the attempt goes on; no step lost, no point doubled; back "
                               "within a lease"});
  StartServer();
  if (HasFatalFailure() || IsSkipped()) return;
  StartWorker("alpha", kAlpha);
  const std::string job = Submit(1, "");
  int cuts = 0;
  const auto strike = [&](const std::function<void(bool)>& cut, absl::Duration length) {
    const int64_t step = yard_.GetJob(job).progress().step();
    ASSERT_TRUE(yard_.WaitForStep(job, step + 20));
    cut(true);
    Pause(length);
    cut(false);
    ++cuts;
    ExpectConvergence("alpha", job);
  };
  const absl::Duration length = absl::Seconds(Scaled(1, 20));
  strike([&](bool is_cut) { Cut(kAlpha, is_cut); }, length);
  strike([&](bool is_cut) { CutOneWay(kAlpha, kServer, is_cut); }, length);
  strike([&](bool is_cut) { CutOneWay(kServer, kAlpha, is_cut); }, length);
  for (int i = 0; i < Scaled(3, 30) && !HasFailure(); ++i) {
    strike([&](bool is_cut) { Cut(kAlpha, is_cut); }, absl::Milliseconds(300));
  }
  row.Count("cuts", cuts);
  ExpectWholeSeries(row, job, 1);
}

TEST_F(Partitions, ALongCutBothWaysMovesTheJobOnce) {
  FaultRow row({.fault = "the line between server and worker",
                .injection = "cut both ways until the job runs elsewhere (keep 0s)",
                .expectation = "the job moves once; no rank overlaps; the worker is back within "
                               "a lease"});
  LONG_LANE_ONLY();
  ExpectOneSuccessor(row, [&](bool is_cut) { Cut(kAlpha, is_cut); });
}

TEST_F(Partitions, AWorkerThatOnlyHearsLosesItsJobOnce) {
  FaultRow row({.fault = "the line between server and worker",
                .injection = "what the worker sends is lost until the job runs elsewhere (keep 0s)",
                .expectation = "the job moves once; no rank overlaps; the worker is back within "
                               "a lease"});
  LONG_LANE_ONLY();
  ExpectOneSuccessor(row, [&](bool is_cut) { CutOneWay(kAlpha, kServer, is_cut); });
}

TEST_F(Partitions, AWorkerThatIsOnlyHeardLosesItsJobOnce) {
  FaultRow row({.fault = "the line between server and worker",
                .injection = "what the server sends is lost until the job runs elsewhere (keep 0s)",
                .expectation = "the job moves once; no rank overlaps; the worker is back within "
                               "a lease"});
  LONG_LANE_ONLY();
  ExpectOneSuccessor(row, [&](bool is_cut) { CutOneWay(kServer, kAlpha, is_cut); });
}

TEST_F(Partitions, RanksThatAreCutApartEndAndGoOnFromTheCheckpoint) {
  FaultRow row({.fault = "the line between two ranks",
                .injection = "cut in each direction alone, and on and off",
                .expectation = "a cut ends the attempt, which goes on from its checkpoint; "
                               "short ones change nothing"});
  LONG_LANE_ONLY();
  StartServer();
  if (HasFatalFailure() || IsSkipped()) return;
  StartWorker("alpha", kAlpha);
  StartWorker("beta", kBeta);
  yard_.WaitForWorkers(2);
  const std::string job = Submit(2, "");
  int attempts = 1;
  const auto strike = [&](const std::function<void(bool)>& cut) {
    const int64_t step = yard_.GetJob(job).progress().step();
    ASSERT_TRUE(yard_.WaitForStep(job, step + 100));
    cut(true);
    v1::Failure failure;
    ASSERT_TRUE(yard_.WaitForJob(job, [&](const Job& seen) {
      failure = seen.failure();
      return seen.attempt() > attempts || seen.state() == v1::JOB_STATE_QUEUED;
    }));
    EXPECT_EQ(failure.failure_class(), v1::FAILURE_CLASS_TRANSIENT) << failure.message();
    cut(false);
    ++attempts;
    ASSERT_TRUE(yard_.WaitForJob(job, [&](const Job& seen) {
      return seen.attempt() == attempts && seen.state() == v1::JOB_STATE_RUNNING;
    }));
  };
  strike([&](bool is_cut) { CutOneWay(kAlpha, kBeta, is_cut); });
  strike([&](bool is_cut) { CutOneWay(kBeta, kAlpha, is_cut); });
  // The line flaps, but never for as long as ranks wait for each other.
  for (int i = 0; i < 20; ++i) {
    CutOneWay(kAlpha, kBeta, true);
    Pause(absl::Milliseconds(500));
    CutOneWay(kAlpha, kBeta, false);
    const int64_t step = yard_.GetJob(job).progress().step();
    ASSERT_TRUE(yard_.WaitForStep(job, step + 5));
  }
  ExpectWholeSeries(row, job, attempts);
}

}  // namespace
}  // namespace trainyard::testing
