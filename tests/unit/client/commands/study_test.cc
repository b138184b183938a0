// Tests `study batch-size` against the fake server, whose jobs succeed at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kStudySpec[] = R"(
name: small
model: {mlp: {}}
data: {dataset: glyphs}
train: {epochs: 20, global_batch: 64, seed: 1}
optimizer: {sgd: {lr: 0.1, momentum: 0.9}}
devices: 2
)";

class StudyBatchSize : public ::testing::Test {
 protected:
  StudyBatchSize() {
    EXPECT_TRUE(ReplaceFile(file_, kStudySpec).ok());
    server_.MakeNewJobs(v1::JOB_STATE_SUCCEEDED);
  }

  // The metrics that jobs/`number` will have reported once it is made, since it ends at once: it
  // reaches an accuracy of 0.9 at this step.
  void Report(int number, int64_t steps) {
    const std::string job = absl::StrCat("jobs/", number);
    for (int64_t step = 1; step <= steps; ++step) {
      server_.AddPoint(job, step, "train.loss", 1.5, 1'000'000 + step * 100'000);
    }
    server_.AddPoint(job, steps / 2, "test.accuracy", 0.5, 1'000'000 + steps / 2 * 100'000);
    server_.AddPoint(job, steps, "test.accuracy", 0.9, 1'000'000 + steps * 100'000);
  }

  CommandResult Study(const std::vector<std::string>& more) {
    std::vector<std::string> args = {"study", "batch-size", file_};
    args.insert(args.end(), more.begin(), more.end());
    return runner_.Run(args);
  }

  FakeServer server_;
  CommandRunner runner_{server_.address()};
  const std::string file_ = runner_.home.File("small.yaml");
};

TEST_F(StudyBatchSize, TrainsWithEveryBatchAndReports) {
  Report(1, 80);
  Report(2, 40);
  Report(3, 36);
  const std::string svg = runner_.home.File("study.svg");
  const CommandResult result =
      Study({"--batches", "128,32,64", "--target", "test.accuracy=0.9", "--svg", svg});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("small: steps until test.accuracy is at least 0.9\n"),
                                HasSubstr("OPTIMIZER"), HasSubstr("8.0s"),
                                HasSubstr("the knee is at batch 64")));
  EXPECT_THAT(result.err, AllOf(HasSubstr("sgd, batch 32, rate 0.05: jobs/1\n"),
                                HasSubstr("sgd, batch 128, rate 0.2: jobs/3\n")));
  EXPECT_THAT(*ReadFile(svg), HasSubstr("</svg>"));
  const v1::CreateJobRequest last = server_.last_create();
  EXPECT_EQ(last.spec().name(), "small-b128-sgd");
  EXPECT_EQ(last.spec().train().global_batch(), 128);
  EXPECT_EQ(last.spec().schedule().warmup_epochs(), 2);
  EXPECT_FALSE(last.request_id().empty());
}

TEST_F(StudyBatchSize, EveryOptimizerIsTrainedWithEveryBatch) {
  for (int job = 1; job <= 4; ++job) Report(job, 40);
  const CommandResult result = Study({"--batches", "64,128", "--optimizers", "sgd,lars", "--lr",
                                      "lars=1", "--warmup", "3 epochs", "-o", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["rows"].size(), 4u);
  EXPECT_EQ(json["rows"][3]["optimizer"], "lars");
  EXPECT_EQ(json["rows"][3]["lr"], 2);
  EXPECT_EQ(json["rows"][3]["job"], "jobs/4");
  EXPECT_NEAR(json["target"].get<double>(), 0.891, 1e-9);
  const v1::JobSpec spec = server_.last_create().spec();
  EXPECT_EQ(spec.optimizer().lars().momentum(), 0.9);
  EXPECT_EQ(spec.schedule().warmup_epochs(), 3);
}

TEST_F(StudyBatchSize, TheSameRequestGivesTheSameJobs) {
  Report(1, 40);
  Report(2, 40);
  const std::vector<std::string> flags = {"--batches", "64,128", "--request-id",
                                          "mine",      "-o",     "name"};
  EXPECT_EQ(Study(flags).out, "jobs/1\njobs/2\n");
  EXPECT_EQ(Study(flags).out, "jobs/1\njobs/2\n");
}

TEST_F(StudyBatchSize, DetachedJobsAreReportedLater) {
  Report(1, 80);
  Report(2, 40);
  const CommandResult begun = Study({"--batches", "64,128", "--detach"});
  ASSERT_EQ(begun.exit_code, 0) << begun.err;
  EXPECT_EQ(begun.out, "jobs/1\njobs/2\n");
  EXPECT_THAT(begun.err, HasSubstr("trainyard study batch-size --from-jobs 1-2 waits for them"));
  const CommandResult result =
      runner_.Run({"study", "batch-size", "--from-jobs", "1-2", "-o", "csv"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("optimizer,batch,lr,job"),
                                HasSubstr("sgd,128,0.2,jobs/2,SUCCEEDED")));
}

TEST_F(StudyBatchSize, CtrlCEndsTheFollowingAndSaysHowToComeBack) {
  server_.MakeNewJobs(v1::JOB_STATE_QUEUED);
  std::thread user([&] {
    server_.WaitForWatches(1);
    runner_.interrupt.Trigger();
  });
  const CommandResult result = Study({"--batches", "64,128", "--target", "test.loss=1"});
  user.join();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("stopped following; the jobs continue"),
                    HasSubstr("trainyard study batch-size --from-jobs 1-2 --target 'test.loss=1'"),
                    HasSubstr("trainyard cancel 1-2")));
}

TEST_F(StudyBatchSize, AFailedJobDoesNotHideTheOthers) {
  Report(1, 80);
  ASSERT_EQ(Study({"--batches", "64,128", "--detach"}).exit_code, 0);
  server_.ChangeJob("jobs/2", [](v1::Job& job) {
    job.set_state(v1::JOB_STATE_FAILED);
    job.mutable_failure()->set_failure_class(v1::FAILURE_CLASS_USER_ERROR);
    job.mutable_failure()->set_reason("NAN_LOSS");
    job.mutable_failure()->set_message("the loss is nan");
  });
  const CommandResult result = runner_.Run({"study", "batch-size", "--from-jobs", "1-2"});
  EXPECT_EQ(result.exit_code, 8);
  EXPECT_THAT(result.out, AllOf(HasSubstr("0.9"), HasSubstr("FAILED"), HasSubstr("NAN_LOSS"),
                                HasSubstr("the loss is nan")));
}

TEST_F(StudyBatchSize, ADryRunSubmitsNothing) {
  const CommandResult result = Study({"--batches", "64,128", "--dry-run"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("small-b128-sgd"), HasSubstr("2 epochs")));
  EXPECT_EQ(runner_.Run({"ls"}).out, "");
}

TEST_F(StudyBatchSize, MistakesAreToldBeforeAnythingIsSubmitted) {
  const CommandResult odd = Study({"--batches", "64,1"});
  EXPECT_EQ(odd.exit_code, 2);
  EXPECT_THAT(odd.err, AllOf(HasSubstr("sgd, batch 1: train."), Not(HasSubstr("batch 64: ")),
                             HasSubstr("1 of 2 trainings cannot run; nothing was submitted")));
  for (const char* batches : {"", "x", "0", "64,64", "64,"}) {
    EXPECT_EQ(Study({"--batches", batches}).exit_code, 2) << batches;
  }
  const CommandResult unknown = Study({"--batches", "64", "--optimizers", "sgd,lion"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("known are adam, adamw, lamb, lars, sgd"));
  EXPECT_EQ(Study({"--batches", "64", "--target", "0.9"}).exit_code, 2);
  EXPECT_EQ(Study({"--batches", "64", "--warmup", "soon"}).exit_code, 2);
  EXPECT_EQ(Study({"--batches", "64", "--warmup", "20 epochs"}).exit_code, 2);
  EXPECT_EQ(Study({"--batches", "64", "--lr", "lars"}).exit_code, 2);
  EXPECT_EQ(Study({"--batches", "64", "--set", "train.global_match=8"}).exit_code, 2);
  EXPECT_EQ(Study({"--batches", "64", "--from-jobs", "1"}).exit_code, 2);
  EXPECT_EQ(runner_.Run({"study", "batch-size", "--batches", "64"}).exit_code, 2);
  const std::string program = runner_.home.Write("program.yaml", R"(
name: mine
program: {command: [python3, train.py]}
devices: 1
)");
  const CommandResult refused = runner_.Run({"study", "batch-size", program, "--batches", "64"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("runs a program of its own"));
  EXPECT_EQ(runner_.Run({"ls"}).out, "");
}

}  // namespace
}  // namespace trainyard::testing
