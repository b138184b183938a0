// Kills every process at some stage. The job continues, and no step, metric or acknowledged
// submission is lost.
#include <gtest/gtest.h>
#include <signal.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::trainyard::v1::Job;

constexpr int kSteps = 480;  // 6 epochs of 80 steps

std::string LongSpec(const std::string& name, int devices) {
  return SmallSpec(name, devices, 6, 4000, "checkpoint: {every: 20 steps}\n");
}

// Checks that the whole curve arrived: each step once, up to the end.
void ExpectUndisturbed(Yard& yard, const std::string& job, int attempts) {
  const Job ended = yard.WaitForEnd(job);
  ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();
  EXPECT_EQ(ended.attempt(), attempts);
  EXPECT_EQ(ended.progress().step(), kSteps);
  const auto points = yard.Metrics(job, "train.loss");
  ASSERT_EQ(points.size(), static_cast<size_t>(kSteps));
  for (size_t i = 0; i < points.size(); ++i) {
    ASSERT_EQ(points[i].step(), static_cast<int64_t>(i + 1)) << "a metric was lost or doubled";
  }
}

TEST(Survive, KillingTheWorkerDaemonCostsARunningJobNothing) {
  Yard yard;
  yard.Start();
  const std::string job = yard.Submit(LongSpec("daemon", 2));
  ASSERT_TRUE(yard.WaitForStep(job, 30));
  yard.KillWorker();
  yard.StartWorker();
  ExpectUndisturbed(yard, job, /*attempts=*/1);
}

TEST(Survive, KillingTheServerCostsARunningJobNothing) {
  Yard yard;
  yard.Start();
  const std::string job = yard.Submit(LongSpec("server", 2));
  ASSERT_TRUE(yard.WaitForStep(job, 30));
  yard.KillServer();
  yard.StartServer();
  ExpectUndisturbed(yard, job, /*attempts=*/1);
}

TEST(Survive, KillingServerAndWorkerCostsARunningJobNothing) {
  Yard yard;
  yard.Start();
  const std::string job = yard.Submit(LongSpec("both", 2));
  ASSERT_TRUE(yard.WaitForStep(job, 30));
  yard.KillServer();
  yard.KillWorker();
  yard.StartWorker();
  yard.StartServer();
  ExpectUndisturbed(yard, job, /*attempts=*/1);
}

TEST(Survive, AFinishIsNotMissedByADaemonThatWasAway) {
  Yard yard;
  yard.Start();
  const std::string job = yard.Submit(SmallSpec("short", 1, 2, 2000));
  ASSERT_TRUE(yard.WaitForStep(job, 5));
  yard.KillWorker();
  // The supervisor finishes the attempt by itself. Its last act is to write exit.json.
  const std::string exit_file = JoinPath(yard.RunDir(job, 1), "exit.json");
  ASSERT_TRUE(WaitUntil([&exit_file] { return FileExists(exit_file); }, kPatience));
  yard.StartWorker();
  const Job ended = yard.WaitForEnd(job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();
  EXPECT_EQ(yard.Metrics(job, "train.loss").size(), 80u);
}

// If the attempts overlap, the points of the newest one are kept. The steps must then be
// complete.
void ExpectWholeSeries(Yard& yard, const std::string& job) {
  std::set<int64_t> steps;
  for (const v1::MetricPoint& point : yard.Metrics(job, "train.loss")) steps.insert(point.step());
  EXPECT_EQ(steps.size(), static_cast<size_t>(kSteps));
  EXPECT_EQ(*steps.rbegin(), kSteps);
}

TEST(Survive, AKilledRankIsRetriedFromTheLastCheckpointWithTheSameCurve) {
  Yard yard;
  yard.Start();
  const std::string plain = yard.Submit(LongSpec("plain", 2));
  ASSERT_EQ(yard.WaitForEnd(plain).state(), v1::JOB_STATE_SUCCEEDED);
  const std::string job = yard.Submit(LongSpec("struck", 2));
  ASSERT_TRUE(yard.WaitForStep(job, 60));
  const auto record = yard.SupervisorRecord(yard.RunDir(job, 1));
  ASSERT_TRUE(record.contains("ranks")) << record;
  kill(record["ranks"][1]["pid"].get<pid_t>(), SIGKILL);
  const Job ended = yard.WaitForEnd(job);
  ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();
  EXPECT_EQ(ended.attempt(), 2);
  EXPECT_EQ(ended.retries(), 1);
  ExpectWholeSeries(yard, job);
  std::map<int64_t, double> curve;
  for (const auto& point : yard.Metrics(plain, "train.loss")) curve[point.step()] = point.value();
  for (const auto& point : yard.Metrics(job, "train.loss")) {
    EXPECT_EQ(point.value(), curve[point.step()]) << "at step " << point.step();
  }
}

TEST(Survive, AKilledSupervisorTakesItsRanksAlongAndTheJobIsRetried) {
  Yard yard;
  yard.Start();
  const std::string job = yard.Submit(LongSpec("orphan", 2));
  ASSERT_TRUE(yard.WaitForStep(job, 60));
  const auto record = yard.SupervisorRecord(yard.RunDir(job, 1));
  ASSERT_TRUE(record.contains("pid")) << record;
  kill(record["pid"].get<pid_t>(), SIGKILL);
  const Job ended = yard.WaitForEnd(job);
  ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();
  EXPECT_EQ(ended.attempt(), 2);
  ExpectWholeSeries(yard, job);
}

TEST(Survive, EveryAcknowledgedSubmissionOutlivesKillsOfTheServer) {
  Yard yard;
  yard.StartServer();
  std::set<std::string> acknowledged;
  v1::JobSpec spec;
  spec.set_name("durable");
  spec.mutable_model()->mutable_mlp();
  spec.mutable_data()->set_dataset("glyphs");
  spec.mutable_train()->set_epochs(1);
  spec.mutable_optimizer()->mutable_sgd()->set_lr(0.1);
  constexpr int kRounds = 5;
  constexpr int kCallers = 4;
  for (int round = 0; round < kRounds; ++round) {
    // Asynchronous calls are in flight when the server dies; only the answered ones count.
    grpc::CompletionQueue queue;
    struct Call {
      grpc::ClientContext context;
      v1::Job job;
      grpc::Status status;
      std::unique_ptr<grpc::ClientAsyncResponseReader<v1::Job>> reader;
    };
    std::vector<std::unique_ptr<Call>> calls;
    const auto submit = [&] {
      calls.push_back(std::make_unique<Call>());
      Call& call = *calls.back();
      v1::CreateJobRequest request;
      *request.mutable_spec() = spec;
      request.set_request_id(absl::StrCat("r", round, "-", calls.size()));
      call.reader = yard.jobs().AsyncCreateJob(&call.context, request, &queue);
      call.reader->Finish(&call.job, &call.status, calls.back().get());
    };
    for (int i = 0; i < kCallers; ++i) submit();
    int open = kCallers;
    int answered = 0;
    while (open > 0) {
      void* tag = nullptr;
      bool ok = false;
      ASSERT_TRUE(queue.Next(&tag, &ok));
      --open;
      const Call& call = *static_cast<Call*>(tag);
      if (!call.status.ok()) continue;
      acknowledged.insert(call.job.name());
      ++answered;
      if (answered == 20 + 7 * round) yard.server()->Signal(SIGKILL);
      if (answered < 200) {
        submit();
        ++open;
      }
    }
    queue.Shutdown();
    yard.KillServer();
    yard.StartServer();
  }
  EXPECT_GE(acknowledged.size(), 100u);
  for (const std::string& name : acknowledged) {
    EXPECT_EQ(yard.GetJob(name).name(), name);
  }
}

}  // namespace
}  // namespace trainyard::testing
