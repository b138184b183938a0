// Tests the computation, the table and the picture of batch-size studies, which need no server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/batch_study.h"
#include "client/commands/batch_study_specs.h"
#include "client/commands/batch_study_svg.h"
#include "client/commands/batch_study_table.h"
#include "tests/unit/client/commands/xml_text.h"

namespace trainyard::commands {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using trainyard::testing::CountOf;
using trainyard::testing::MistakeOfXml;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A training that evaluates every ten steps, one second apart, until it has told all values.
StudyRun RunOf(const std::string& optimizer, int64_t batch, const std::vector<double>& accuracy) {
  StudyRun run = {absl::StrCat("jobs/", batch), optimizer, batch, 0.1, "SUCCEEDED"};
  run.steps_per_epoch = 1000.0 / static_cast<double>(batch);
  int64_t step = 0;
  for (const double value : accuracy) {
    step += 10;
    run.series["test.accuracy"].push_back({step, value, static_cast<double>(step) / 10});
  }
  return run;
}

// Returns a training whose accuracy is 0.9 from this step on, a multiple of ten.
StudyRun RunThatReaches(const std::string& optimizer, int64_t batch, int64_t step) {
  std::vector<double> accuracy(static_cast<size_t>(step / 10), 0.5);
  accuracy.back() = 0.9;
  accuracy.push_back(0.91);
  return RunOf(optimizer, batch, accuracy);
}

const StudyTarget kTarget = {"test.accuracy", 0.9};

TEST(BatchStudy, StepsAreCountedToTheFirstEvaluationThatReachesTheTarget) {
  const BatchStudy study =
      MakeBatchStudy("a", {RunOf("sgd", 100, {0.2, kNan, 0.9, 0.8, 0.95})}, kTarget);
  ASSERT_EQ(study.rows.size(), 1u);
  const StudyRow& row = study.rows[0];
  EXPECT_EQ(row.steps, 30);
  EXPECT_EQ(row.best, 0.95);
  EXPECT_EQ(row.epochs, 3);
  EXPECT_NEAR(*row.seconds, 3, 1e-9) << "the first ten steps count like the others";
  EXPECT_NEAR(*row.samples_per_s, 1000, 1e-9);
  EXPECT_EQ(row.scaling, 1);
  EXPECT_FALSE(row.is_knee) << "there is nothing to compare it with";
}

TEST(BatchStudy, SmallerIsBetterForALoss) {
  StudyRun run = RunOf("sgd", 100, {});
  run.series["test.loss"] = {{10, 2.0, 1}, {20, 0.7, 2}, {30, 0.4, 3}};
  const BatchStudy study = MakeBatchStudy("a", {run}, StudyTarget{"test.loss", 0.7});
  EXPECT_EQ(study.rows[0].steps, 20);
  EXPECT_EQ(study.rows[0].best, 0.4);
}

TEST(BatchStudy, TheKneeIsTheLastBatchThatScales) {
  // Perfect scaling from 320 steps needs 160, 80 and 40; 0.8 of its speed allows 200, 100 and 50.
  const BatchStudy study =
      MakeBatchStudy("a",
                     {RunThatReaches("sgd", 128, 90), RunThatReaches("sgd", 32, 320),
                      RunThatReaches("sgd", 64, 200), RunThatReaches("sgd", 256, 80)},
                     kTarget);
  const auto rows = study.RowsOf("sgd");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]->run.batch, 32);
  EXPECT_NEAR(*rows[1]->scaling, 0.8, 1e-9);
  EXPECT_NEAR(*rows[2]->scaling, 80.0 / 90, 1e-9);
  EXPECT_NEAR(*rows[3]->scaling, 0.5, 1e-9);
  EXPECT_FALSE(rows[1]->is_knee);
  EXPECT_TRUE(rows[2]->is_knee);
  EXPECT_THAT(BatchStudyText(study), HasSubstr("sgd: the knee is at batch 128, up to which the "
                                               "steps to the target fall at least 80% as fast"));
}

TEST(BatchStudy, ABatchThatMissesTheTargetIsBehindTheKneeAndAFailedOneIsPassedOver) {
  StudyRun failed = RunOf("sgd", 64, {0.1});
  failed.failure = "FAILED (user error, NAN_LOSS): the loss is nan";
  const BatchStudy study =
      MakeBatchStudy("a",
                     {RunThatReaches("sgd", 32, 320), failed, RunThatReaches("sgd", 128, 80),
                      RunOf("sgd", 256, {0.5, 0.6}), RunThatReaches("lars", 32, 100)},
                     kTarget);
  const auto rows = study.RowsOf("sgd");
  EXPECT_TRUE(rows[2]->is_knee);
  EXPECT_FALSE(rows[3]->steps.has_value());
  EXPECT_THAT(study.Optimizers(), ElementsAre("sgd", "lars"));
  EXPECT_THAT(BatchStudyText(study),
              AllOf(HasSubstr("NAN_LOSS): the loss is nan"), HasSubstr("did not reach the target"),
                    HasSubstr("knee"), HasSubstr("lars: no knee")));
}

TEST(BatchStudy, TheKneeMayLieBeyondTheLargestBatch) {
  const BatchStudy study =
      MakeBatchStudy("a", {RunThatReaches("sgd", 32, 100), RunThatReaches("sgd", 64, 50)}, kTarget);
  EXPECT_TRUE(study.rows[1].is_knee);
  EXPECT_THAT(BatchStudyText(study), HasSubstr("up to batch 64, the largest that can be compared"));
}

TEST(BatchStudy, TheKneeMayBeTheSmallestBatch) {
  const BatchStudy study =
      MakeBatchStudy("a", {RunThatReaches("sgd", 32, 100), RunThatReaches("sgd", 64, 90)}, kTarget);
  EXPECT_TRUE(study.rows[0].is_knee);
  EXPECT_THAT(BatchStudyText(study), HasSubstr("the knee is at batch 32; with the next larger"));
}

TEST(BatchStudy, WithoutATargetOneIsChosenThatAllTrainingsReach) {
  StudyRun failed = RunOf("sgd", 256, {0.1});
  failed.failure = "FAILED";
  const std::vector<StudyRun> runs = {RunOf("sgd", 32, {0.5, 0.9}), RunOf("lars", 32, {0.6, 0.8}),
                                      failed};
  const auto target = ChooseStudyTarget(runs);
  ASSERT_TRUE(target.has_value());
  EXPECT_EQ(target->metric, "test.accuracy");
  EXPECT_NEAR(target->value, 0.792, 1e-9);
  EXPECT_THAT(target->reason, HasSubstr("the best of lars at batch 32 was 0.8"));
  EXPECT_THAT(BatchStudyText(MakeBatchStudy("a", runs, std::nullopt)),
              HasSubstr("a: steps until test.accuracy is at least 0.792\nit was chosen so"));

  StudyRun by_loss = RunOf("sgd", 32, {});
  by_loss.series["test.loss"] = {{10, 0.5, 1}};
  EXPECT_NEAR(ChooseStudyTarget({by_loss})->value, 0.505, 1e-9);
  EXPECT_FALSE(ChooseStudyTarget({failed}).has_value());
  EXPECT_THAT(BatchStudyText(MakeBatchStudy("a", {failed}, std::nullopt)),
              HasSubstr("no training has told an accuracy or a loss"));
}

TEST(BatchStudy, WaitsBetweenAttemptsAreNoTrainingTime) {
  // The second attempt begins an hour after the first, at step 21.
  const StudySeries series = {
      {"train.loss",
       {{1, 2, 100, 1}, {11, 2, 110, 1}, {21, 2, 3710, 2}, {31, 2, 3720, 2}, {41, 2, 3730, 2}}}};
  EXPECT_NEAR(*StudySeconds(series, 40), 40, 1e-9);
  EXPECT_FALSE(StudySeconds(series, 1).has_value());
  EXPECT_FALSE(StudySeconds({}, 10).has_value());
}

TEST(BatchStudy, TargetsAreReadWithTheirMetric) {
  const auto target = ParseStudyTarget("test.loss=0.5");
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->metric, "test.loss");
  EXPECT_EQ(target->value, 0.5);
  for (const char* text : {"", "0.9", "=0.9", "test.accuracy=", "test.accuracy=nan", "a=b"}) {
    EXPECT_FALSE(ParseStudyTarget(text).ok()) << text;
  }
}

TEST(BatchStudy, JsonHasNullForWhatIsUnknown) {
  const BatchStudy study =
      MakeBatchStudy("a", {RunThatReaches("sgd", 32, 100), RunOf("sgd", 64, {0.1})}, kTarget);
  const auto json = nlohmann::json::parse(BatchStudyJson(study, true));
  EXPECT_EQ(json["metric"], "test.accuracy");
  EXPECT_EQ(json["rows"][0]["steps"], 100);
  EXPECT_EQ(json["rows"][0]["knee"], true);
  EXPECT_TRUE(json["rows"][1]["steps"].is_null());
  EXPECT_EQ(nlohmann::json::parse(BatchStudyRowsJson(study)).size(), 2u);
}

TEST(BatchStudySvg, DrawsALineForEachOptimizerInBothPanels) {
  const BatchStudy study =
      MakeBatchStudy("a & <b>",
                     {RunThatReaches("sgd", 32, 320), RunThatReaches("sgd", 64, 160),
                      RunThatReaches("sgd", 128, 150), RunOf("sgd", 256, {0.5}),
                      RunThatReaches("lars", 32, 320), RunThatReaches("lars", 64, 160)},
                     kTarget);
  const std::string svg = BatchStudySvg(study);
  EXPECT_THAT(
      svg, AllOf(HasSubstr("a &amp; &lt;b&gt;: batch-size study"), HasSubstr("steps to the target"),
                 HasSubstr("time to the target"), HasSubstr("prefers-color-scheme:dark"),
                 HasSubstr(">knee 64<"), HasSubstr("sgd, batch 256, jobs/256: target not reached"),
                 HasSubstr("perfect scaling")));
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  EXPECT_EQ(CountOf(svg, "<polyline"), 4);
  EXPECT_EQ(CountOf(svg, "stroke-dasharray"), 3) << "two lines and the legend";
  EXPECT_EQ(MistakeOfXml(svg), "");
}

TEST(BatchStudySvg, IsAPictureEvenIfNothingIsKnown) {
  for (const BatchStudy& study :
       {MakeBatchStudy("a", {}, std::nullopt), MakeBatchStudy("a", {RunOf("sgd", 1, {})}, kTarget),
        MakeBatchStudy("a", {RunThatReaches("sgd", 32, 10)}, kTarget)}) {
    const std::string svg = BatchStudySvg(study);
    EXPECT_TRUE(absl::EndsWith(svg, "</svg>\n"));
    EXPECT_EQ(MistakeOfXml(svg), "");
    EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  }
}

v1::JobSpec SpecWithRate(double lr) {
  v1::JobSpec spec;
  spec.set_name("small");
  spec.mutable_model()->mutable_mlp();
  spec.mutable_data()->set_dataset("glyphs");
  spec.mutable_train()->set_epochs(20);
  spec.mutable_train()->set_global_batch(64);
  v1::SgdOptimizer& sgd = *spec.mutable_optimizer()->mutable_sgd();
  sgd.set_lr(lr);
  sgd.set_momentum(0.9);
  sgd.set_weight_decay(0.0005);
  spec.mutable_schedule()->mutable_cosine()->set_final_lr(lr / 10);
  return spec;
}

TEST(BatchStudySpecs, TheRateGrowsWithTheBatch) {
  StudyPlan plan;
  plan.batches = {32, 256};
  const auto specs = MakeStudySpecs(SpecWithRate(0.1), plan);
  ASSERT_TRUE(specs.ok()) << specs.status();
  ASSERT_EQ(specs->size(), 2u);
  EXPECT_EQ((*specs)[0].lr, 0.05);
  const v1::JobSpec& spec = (*specs)[1].spec;
  EXPECT_EQ(spec.name(), "small-b256-sgd");
  EXPECT_EQ(spec.train().global_batch(), 256);
  EXPECT_EQ(spec.optimizer().sgd().lr(), 0.4);
  EXPECT_NEAR(spec.schedule().cosine().final_lr(), 0.04, 1e-12);
  EXPECT_EQ(spec.schedule().warmup_epochs(), 2) << "a tenth of 20 epochs";

  plan.scaling = StudyScaling::kSquareRoot;
  EXPECT_EQ((*MakeStudySpecs(SpecWithRate(0.1), plan))[1].lr, 0.2);
  plan.scaling = StudyScaling::kNone;
  EXPECT_EQ((*MakeStudySpecs(SpecWithRate(0.1), plan))[1].lr, 0.1);
  plan.scaling = StudyScaling::kLinear;
  plan.base_batch = 128;
  EXPECT_EQ((*MakeStudySpecs(SpecWithRate(0.1), plan))[1].lr, 0.2);
}

TEST(BatchStudySpecs, ARateThatTheSpecScalesItselfIsScaledOnce) {
  v1::JobSpec spec = SpecWithRate(0.1);
  spec.mutable_optimizer()->set_lr_base_batch(32);
  const auto specs = MakeStudySpecs(spec, {.batches = {64, 128}});
  ASSERT_TRUE(specs.ok()) << specs.status();
  EXPECT_EQ((*specs)[0].lr, 0.2);
  EXPECT_EQ((*specs)[1].lr, 0.4);
  EXPECT_FALSE((*specs)[1].spec.optimizer().has_lr_base_batch());
}

TEST(BatchStudySpecs, OtherOptimizersTakeWhatMeansTheSameInThem) {
  const StudyPlan plan = {
      .batches = {128}, .optimizers = {"lars", "adamw", "sgd"}, .rates = {{"adamw", 0.004}}};
  const auto specs = MakeStudySpecs(SpecWithRate(0.1), plan);
  ASSERT_TRUE(specs.ok()) << specs.status();
  const v1::LarsOptimizer& lars = (*specs)[0].spec.optimizer().lars();
  EXPECT_EQ(lars.lr(), 4);
  EXPECT_EQ(lars.momentum(), 0.9);
  EXPECT_EQ(lars.weight_decay(), 0.0005);
  EXPECT_NEAR((*specs)[0].spec.schedule().cosine().final_lr(), 0.4, 1e-12);
  const v1::AdamWOptimizer& adamw = (*specs)[1].spec.optimizer().adamw();
  EXPECT_EQ(adamw.lr(), 0.008);
  EXPECT_FALSE(adamw.has_weight_decay()) << "its decay means something else";
  EXPECT_EQ((*specs)[2].spec.optimizer().sgd().lr(), 0.2);

  const auto idle = MakeStudySpecs(SpecWithRate(0.1), {.batches = {64}, .rates = {{"lars", 1}}});
  EXPECT_THAT(idle.status().message(), HasSubstr("'lars', which is not trained with"));
  const auto unknown = MakeStudySpecs(SpecWithRate(0.1), {.batches = {1}, .optimizers = {"lion"}});
  EXPECT_EQ(unknown.status().message(),
            "there is no optimizer 'lion'; known are adam, adamw, lamb, lars, sgd");
}

TEST(BatchStudySpecs, SpansInStepsAreThoseOfTheBaseBatch) {
  v1::JobSpec spec = SpecWithRate(0.1);
  spec.mutable_train()->set_steps(1000);
  spec.mutable_schedule()->set_warmup_steps(100);
  spec.mutable_evaluate()->mutable_every()->set_steps(50);
  const auto specs = MakeStudySpecs(spec, {.batches = {32, 256}});
  ASSERT_TRUE(specs.ok()) << specs.status();
  EXPECT_EQ((*specs)[0].spec.train().steps(), 2000);
  EXPECT_EQ((*specs)[1].spec.train().steps(), 250);
  EXPECT_EQ((*specs)[1].spec.schedule().warmup_steps(), 25);
  EXPECT_EQ((*specs)[1].spec.evaluate().every().steps(), 13);

  StudyPlan plan = {.batches = {256}};
  plan.has_no_warmup = true;
  const auto cold = MakeStudySpecs(spec, plan);
  EXPECT_FALSE((*cold)[0].spec.schedule().has_warmup_steps());
  EXPECT_EQ((*cold)[0].spec.schedule().warmup_epochs(), 0);
}

TEST(BatchStudySpecs, TitlesAreTheNamesWithoutWhatTheStudyAdded) {
  EXPECT_EQ(StudyTitleOf("small-b256-sgd", 256, "sgd"), "small");
  EXPECT_EQ(StudyTitleOf("other", 256, "sgd"), "other");
  v1::JobSpec spec = SpecWithRate(0.1);
  spec.set_name(std::string(63, 'x'));
  const auto specs = MakeStudySpecs(spec, {.batches = {32}});
  EXPECT_EQ((*specs)[0].spec.name().size(), 63u);
}

}  // namespace
}  // namespace trainyard::commands
