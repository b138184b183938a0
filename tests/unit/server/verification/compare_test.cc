// Tests what comes out when two runs are compared, and which causes are named.
#include "server/verification/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/verification/causes.h"

namespace trainyard::verification {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Series Of(const std::vector<double>& values, int64_t first_step = 1) {
  Series series;
  for (const double value : values) series.push_back({first_step++, value});
  return series;
}

RunRecord RunNamed(const std::string& job) {
  RunRecord run;
  run.job = job;
  run.state = v1::JOB_STATE_SUCCEEDED;
  run.attempts = 1;
  run.metrics = {{"train.loss", Of({2, 1, 0.5})}, {"test.accuracy", Of({0.5, 0.75})}};
  run.checkpoint_step = 3;
  run.checkpoint = {{"model.safetensors", "w1"}, {"state.json", job}};
  run.data_digest = "d1";
  run.model_digest = "m1";
  run.worker_version = "1.0";
  run.devices = {"cpu", "cpu"};
  return run;
}

class CompareTest : public ::testing::Test {
 protected:
  // Compares without checkpoints, so that metrics decide.
  v1::Verification Metrics() {
    first_.checkpoint.clear();
    return Compare(first_, second_, kToleranceDefault);
  }
  std::string Reasons(const v1::Verification& verification) {
    std::string all;
    for (const std::string& reason : verification.reasons()) absl::StrAppend(&all, reason, "\n");
    return all;
  }

  RunRecord first_ = RunNamed("jobs/1");
  RunRecord second_ = RunNamed("jobs/2");
};

TEST_F(CompareTest, TheSameWeightsAreIdenticalWhateverElseTheFilesHold) {
  const v1::Verification verification = Compare(first_, second_, 0.01);
  EXPECT_EQ(verification.result(), v1::VERIFICATION_RESULT_IDENTICAL);
  EXPECT_THAT(verification.reasons(),
              ElementsAre("the weights of the checkpoints at step 3 are the same, byte for byte"));
  EXPECT_EQ(verification.devices(), "2 x cpu");
  EXPECT_EQ(verification.job(), "jobs/2");
  EXPECT_EQ(verification.metrics_size(), 2);
}

TEST_F(CompareTest, OtherWeightsAreNeverIdenticalEvenIfAllMetricsAre) {
  second_.checkpoint["model.safetensors"] = "w2";
  const v1::Verification verification = Compare(first_, second_, 0.01);
  EXPECT_EQ(verification.result(), v1::VERIFICATION_RESULT_EQUIVALENT);
  EXPECT_THAT(Reasons(verification), HasSubstr("the weights of the checkpoints at step 3 differ"));
  EXPECT_THAT(Reasons(verification), HasSubstr("nothing that is recorded differs"));
}

TEST_F(CompareTest, TheFilesOfAProgramMayDifferIfItsMetricsDoNot) {
  for (RunRecord* run : {&first_, &second_}) {
    run->spec.mutable_program()->add_command("train");
    run->checkpoint = {{"state.pt", run->job}};
  }
  EXPECT_EQ(Compare(first_, second_, 0.01).result(), v1::VERIFICATION_RESULT_IDENTICAL);
  second_.checkpoint = first_.checkpoint;
  EXPECT_THAT(Reasons(Compare(first_, second_, 0.01)), HasSubstr("the files of the checkpoints"));
}

TEST_F(CompareTest, CheckpointsOfDifferentStepsAreNoEvidence) {
  second_.checkpoint_step = 4;
  second_.checkpoint["model.safetensors"] = "w2";
  EXPECT_EQ(Compare(first_, second_, 0.01).result(), v1::VERIFICATION_RESULT_IDENTICAL);
}

TEST_F(CompareTest, MetricsThatAreAllTheSameAreIdentical) {
  const v1::Verification verification = Metrics();
  EXPECT_EQ(verification.result(), v1::VERIFICATION_RESULT_IDENTICAL);
  EXPECT_THAT(verification.reasons(), ElementsAre("all values of 2 metrics are the same"));
}

TEST_F(CompareTest, ASmallDifferenceIsTolerated) {
  second_.metrics["train.loss"][1].value = 1.01;
  const v1::Verification verification = Metrics();
  EXPECT_EQ(verification.result(), v1::VERIFICATION_RESULT_EQUIVALENT);
  ASSERT_EQ(verification.metrics_size(), 2);
  const v1::MetricComparison& loss = verification.metrics(1);
  EXPECT_EQ(loss.name(), "train.loss");
  EXPECT_EQ(loss.points(), 3);
  EXPECT_EQ(loss.first_step(), 2);
  EXPECT_NEAR(loss.difference(), 0.01 / 3.5, 1e-12);
  EXPECT_EQ(loss.left(), 0.5);
  EXPECT_EQ(loss.right(), 0.5);
  EXPECT_EQ(Compare(first_, second_, 0.001).result(), v1::VERIFICATION_RESULT_DIFFERENT);
}

TEST_F(CompareTest, ALargeDifferenceIsNamedWithItsFirstStep) {
  second_.metrics["test.accuracy"][0].value = 0.25;
  const v1::Verification verification = Metrics();
  EXPECT_EQ(verification.result(), v1::VERIFICATION_RESULT_DIFFERENT);
  EXPECT_THAT(Reasons(verification),
              HasSubstr("test.accuracy differs by 20% in the mean, from step 1 on"));
  EXPECT_THAT(Reasons(verification), HasSubstr("another kind of processor"));
}

TEST_F(CompareTest, OnlyTheLargestDifferencesAreNamed) {
  for (int i = 0; i < 5; ++i) {
    first_.metrics[absl::StrCat("m", i)] = Of({100});
    second_.metrics[absl::StrCat("m", i)] = Of({100.0 + 10 * i});
  }
  const std::string reasons = Reasons(Metrics());
  EXPECT_THAT(reasons, HasSubstr("m4 differs by 40%"));
  EXPECT_THAT(reasons, HasSubstr("1 more metrics differ, by less"));
  EXPECT_THAT(reasons, Not(HasSubstr("m1 differs")));
}

TEST_F(CompareTest, ValuesThatAreNoNumbers) {
  EXPECT_EQ(CompareSeries("x", Of({kNan, kInf}), Of({kNan, kInf})).difference(), 0);
  EXPECT_EQ(CompareSeries("x", Of({kNan}), Of({1})).difference(), kInf);
  EXPECT_EQ(CompareSeries("x", Of({1}), Of({kNan})).difference(), kInf);
  EXPECT_EQ(CompareSeries("x", Of({kInf}), Of({-kInf})).difference(), kInf);
  EXPECT_EQ(CompareSeries("x", Of({0, 0}), Of({0, -0.0})).difference(), 0);
  EXPECT_EQ(CompareSeries("x", Of({0, 0}), Of({0, 1e-9})).difference(), kInf);
  const double most = std::numeric_limits<double>::max();
  EXPECT_NEAR(CompareSeries("x", Of({most, most}), Of({most, -most})).difference(), 1, 1e-12);
  const double least = std::numeric_limits<double>::denorm_min();
  EXPECT_GT(CompareSeries("x", Of({1e300, 1}), Of({1e300, 1 + 1e-15})).difference(), 0);
  EXPECT_GT(CompareSeries("x", Of({1e300, least}), Of({1e300, 0})).difference(), 0);
}

TEST_F(CompareTest, OnlyCommonStepsCount) {
  const v1::MetricComparison compared = CompareSeries("x", Of({1, 2, 3, 4}, 1), Of({3, 4, 5}, 3));
  EXPECT_EQ(compared.points(), 2);
  EXPECT_EQ(compared.difference(), 0);
  EXPECT_EQ(CompareSeries("x", Of({1}), Of({1}, 2)).points(), 0);
  EXPECT_EQ(CompareSeries("x", {}, Of({1})).points(), 0);
  EXPECT_EQ(CompareSeries("x", {}, {}).points(), 0);
}

TEST_F(CompareTest, ARunThatEndedEarlierIsDifferent) {
  for (auto& [name, series] : second_.metrics) series.pop_back();
  const v1::Verification verification = Metrics();
  EXPECT_EQ(verification.result(), v1::VERIFICATION_RESULT_DIFFERENT);
  EXPECT_THAT(Reasons(verification),
              HasSubstr("the last values are of step 3 in jobs/1 and of step 2 in jobs/2"));
  EXPECT_THAT(
      Reasons(verification),
      HasSubstr("train.loss has 3 values in jobs/1 and 2 in jobs/2, 2 of them at the same"));
}

TEST_F(CompareTest, AMetricThatOneOfThemLacksIsNotIdentical) {
  second_.metrics.erase("test.accuracy");
  second_.metrics["test.loss"] = Of({1, 1});
  const v1::Verification verification = Metrics();
  EXPECT_EQ(verification.result(), v1::VERIFICATION_RESULT_EQUIVALENT);
  EXPECT_THAT(Reasons(verification), HasSubstr("only jobs/1 has values of test.accuracy"));
  EXPECT_THAT(Reasons(verification), HasSubstr("only jobs/2 has values of test.loss"));
}

TEST_F(CompareTest, WithNothingInCommonThereIsNothingToCompare) {
  first_.checkpoint.clear();
  second_.metrics.clear();
  EXPECT_EQ(Metrics().result(), v1::VERIFICATION_RESULT_FAILED);
  EXPECT_THAT(Reasons(Metrics()), HasSubstr("there is nothing to compare"));
  first_.metrics.clear();
  first_.outputs = second_.outputs = {{"result.txt", "h"}};
  EXPECT_EQ(Metrics().result(), v1::VERIFICATION_RESULT_IDENTICAL);
  second_.outputs["result.txt"] = "i";
  EXPECT_EQ(Metrics().result(), v1::VERIFICATION_RESULT_DIFFERENT);
}

TEST_F(CompareTest, ARunThatFailedIsNotCompared) {
  second_.state = v1::JOB_STATE_FAILED;
  second_.failure = "the loss is nan";
  const v1::Verification verification = Compare(first_, second_, 0.01);
  EXPECT_EQ(verification.result(), v1::VERIFICATION_RESULT_FAILED);
  EXPECT_THAT(verification.reasons(),
              ElementsAre("jobs/2 is failed: the loss is nan, so there is nothing to compare"));
  EXPECT_THAT(verification.metrics(), IsEmpty());
  second_.state = v1::JOB_STATE_CANCELLED;
  EXPECT_THAT(Reasons(Compare(first_, second_, 0.01)), HasSubstr("jobs/2 is cancelled"));
}

TEST_F(CompareTest, RatesAndTimesAreNotCompared) {
  for (const char* name : {"samples_per_s", "comm.seconds", "gpu.power", "compute.seconds.rank1",
                           "comm.bytes", "data_wait_fraction", "epoch_time"}) {
    EXPECT_FALSE(IsCompared(name)) << name;
  }
  for (const char* name : {"train.loss", "test.accuracy", "loss", "lr", "test.loss"}) {
    EXPECT_TRUE(IsCompared(name)) << name;
  }
  second_.metrics["samples_per_s"] = Of({5000});
  EXPECT_EQ(Metrics().result(), v1::VERIFICATION_RESULT_IDENTICAL);
}

TEST_F(CompareTest, EveryCauseIsNamed) {
  second_.data_digest = "d2";
  second_.model_digest = "m2";
  second_.worker_version = "1.1";
  second_.devices = {"h200", "h200"};
  second_.attempts = 2;
  first_.spec.mutable_program()->set_code("c1");
  second_.spec.mutable_program()->set_code("c2");
  second_.spec.mutable_optimizer()->mutable_sgd()->set_lr(0.5);
  second_.spec.set_name("other");
  first_.spec.mutable_train()->set_precision(v1::PRECISION_F32);
  second_.spec.mutable_train()->set_precision(v1::PRECISION_BF16);
  first_.environment.set_interpreter("python 3.11");
  second_.environment.set_interpreter("python 3.12");
  first_.environment.set_packages("numpy==1.26\ntorch==2.1\nold==1\n");
  second_.environment.set_packages("numpy==1.26\ntorch==2.2\nnew==3\n");
  first_.environment.set_driver("535");
  second_.environment.set_driver("550");
  first_.environment.set_image_digest("sha256:a");
  const std::string all = absl::StrJoin(Causes(first_, second_), "\n");
  for (const char* part :
       {"the training data differ: d1 for jobs/1, d2 for jobs/2", "the models differ",
        "the code differs; `trainyard diff jobs/1 jobs/2`", "optimizer.sgd.lr (unset, 0.5)",
        "the precision differs: \"f32\" for jobs/1, \"bf16\" for jobs/2",
        "which may round in other ways: 2 x cpu for jobs/1, 2 x h200 for jobs/2",
        "the versions of the workers differ", "the interpreters differ",
        "the packages differ: old (1, none), torch (2.1, 2.2), new (none, 3)", "the drivers differ",
        "jobs/1 took 1 attempt, and jobs/2 took 2;"}) {
    EXPECT_THAT(all, HasSubstr(part));
  }
  EXPECT_THAT(all, Not(HasSubstr("image"))) << "it is known of one of them only";
  EXPECT_THAT(all, Not(HasSubstr("name (")));
}

TEST_F(CompareTest, AnotherNumberOfDevicesIsNamed) {
  second_.devices = {"cpu"};
  EXPECT_THAT(Causes(first_, second_),
              ElementsAre("the numbers of devices differ: 2 x cpu for jobs/1, 1 x cpu for jobs/2"));
}

TEST_F(CompareTest, WithoutACauseItSaysWhatElseMayBe) {
  EXPECT_THAT(Causes(first_, second_), IsEmpty());
  EXPECT_THAT(NoCause(second_), HasSubstr("another kind of processor"));
  second_.devices = {"h200"};
  EXPECT_THAT(NoCause(second_), HasSubstr("train.reproducibility: bitwise"));
  second_.spec.mutable_program()->add_command("train");
  EXPECT_THAT(NoCause(second_), HasSubstr("random numbers"));
}

TEST(DevicesTextTest, CountsByType) {
  EXPECT_EQ(DevicesText({}), "");
  EXPECT_EQ(DevicesText({"h200", "cpu", "h200"}), "1 x cpu, 2 x h200");
}

}  // namespace
}  // namespace trainyard::verification
