// Tests the plan of a pipeline: its cuts, what stages hold, and the predicted step.
#include "worker/trainer/plan/planned_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/spec/defaults.h"
#include "nlohmann/json.hpp"
#include "tests/unit/worker/trainer/gang_trainer.h"
#include "worker/trainer/report/pipeline_text.h"
#include "worker/trainer/report/plan_report.h"

namespace trainyard::trainer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::JobSpec Convnet(int stages) {
  v1::JobSpec spec;
  spec.mutable_model()->mutable_convnet();
  spec.mutable_train()->set_epochs(1);
  spec.mutable_train()->set_replicas(1);
  spec.mutable_optimizer()->mutable_sgd()->set_lr(0.1);
  spec.mutable_devices()->set_count(stages);
  spec.mutable_stages()->set_count(stages);
  spec::FillDefaults(spec);
  return spec;
}

PipelinePlanOptions Machine() {
  return {.backend = "reference", .machine = {1e9, 1e12}};
}

TEST(StagePlans, ChooseCutsThatShareTheWork) {
  const auto plan = PlanPipeline(Convnet(2), Machine());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->is_chosen);
  ASSERT_EQ(plan->cuts.size(), 1u);
  // The second convolution has eight times the arithmetic of the first.
  EXPECT_THAT(plan->cuts, ElementsAre("conv2"));
  EXPECT_EQ(plan->microbatches, 8);
  EXPECT_EQ(plan->microbatch_rows, 8);
  EXPECT_EQ(plan->stages[0].parameters, 320);
  EXPECT_EQ(plan->stages[0].slots, 2);
  EXPECT_EQ(plan->stages[1].slots, 1);
  EXPECT_EQ(plan->stages[1].first_layer, "conv2");
  EXPECT_EQ(plan->stages[1].last_layer, "loss");
}

TEST(StagePlans, GiveAFastDeviceMoreLayers) {
  v1::JobSpec spec = Convnet(2);
  PipelinePlanOptions options = Machine();
  options.speeds = {100, 1};
  const auto plan = PlanPipeline(spec, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_NE(plan->cuts[0], "conv2");
  EXPECT_GT(plan->stages[0].parameters, 320);
}

TEST(StagePlans, PredictTheStepFromTheStages) {
  v1::JobSpec spec = Convnet(2);
  spec.mutable_stages()->add_cuts("conv2");
  spec.mutable_stages()->set_schedule(v1::PIPELINE_SCHEDULE_SEQUENTIAL);
  const auto plan = PlanPipeline(spec, Machine());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->is_chosen);
  EXPECT_EQ(plan->microbatches, 1);
  double all = 0;
  for (const PlannedStage& stage : plan->stages) all += stage.times.forward + stage.times.backward;
  // One after the other, and what crosses, twice.
  EXPECT_GE(plan->prediction.step_seconds, all);
  EXPECT_NEAR(plan->prediction.step_seconds, all, 0.01 * all);
  EXPECT_NEAR(plan->prediction.bubble, 0.5, 0.01);
}

TEST(StagePlans, ABatchNormedMicrobatchIsAReplica) {
  v1::JobSpec spec = Convnet(2);
  spec.mutable_model()->mutable_convnet()->set_batch_norm(true);
  spec.mutable_train()->set_replicas(4);
  const auto plan = PlanPipeline(spec, Machine());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->microbatches, 4);
  EXPECT_EQ(plan->microbatch_rows, 16);
}

TEST(StagePlans, CutWhereTheMemoryOfADeviceAllows) {
  PipelinePlanOptions options = Machine();
  const auto roomy = PlanPipeline(Convnet(2), options);
  ASSERT_TRUE(roomy.ok());
  options.memory_bytes = 1000;
  const auto tight = PlanPipeline(Convnet(2), options);
  EXPECT_EQ(tight.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(tight.status().message(), HasSubstr("no cuts into 2 stages let each fit into"));
  v1::JobSpec spec = Convnet(2);
  spec.mutable_stages()->add_cuts("conv2");
  const auto told = PlanPipeline(spec, options);
  EXPECT_EQ(told.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(told.status().message(), HasSubstr("stage 0: the step needs"));
}

TEST(StagePlans, SayWhichCutsAreImpossible) {
  v1::JobSpec spec = Convnet(2);
  spec.mutable_stages()->add_cuts("conv9");
  EXPECT_THAT(PlanPipeline(spec, Machine()).status().message(), HasSubstr("no layer 'conv9'"));
  EXPECT_THAT(PlanPipeline(Convnet(40), Machine()).status().message(),
              HasSubstr("this model can be cut in 7 places; expected at least 39"));
}

TEST(StagePlans, ArePrintedForASpecWithStages) {
  JobText job;
  job.model = R"({"convnet": {"channels": [4, 6]}})";
  job.train = R"({"epochs": 1, "global_batch": 16})";
  std::string spec = job.Spec();
  spec.insert(spec.size() - 1, R"(, "devices": {"count": 4}, "stages": {"cuts": ["conv2"]})");
  PlanOptions options = {.backend = "reference", .measures_machine = false};
  const auto text = ReportPlan(spec, options);
  ASSERT_TRUE(text.ok()) << text.status() << spec;
  EXPECT_THAT(
      *text, AllOf(HasSubstr("2 stages, cut before conv2; 2 pipelines, backend reference in f32, "),
                   HasSubstr("1f1b: 8 microbatches of 1 row"), HasSubstr("conv1 to")));
  options.format = PlanFormat::kJson;
  const auto json = ReportPlan(spec, options);
  ASSERT_TRUE(json.ok()) << json.status();
  const auto parsed = nlohmann::json::parse(*json);
  EXPECT_EQ(parsed["pipelines"], 2);
  EXPECT_EQ(parsed["stages"].size(), 2u);
}

// A run chooses its cuts for a common machine, and so does a plan that has measured none.
TEST(StagePlans, WithoutAMachineHaveTheCutsOfARun) {
  const v1::JobSpec spec = Convnet(3);
  PipelinePlanOptions common = {.backend = "reference", .machine = kCommonMachine};
  const auto of_run = PlanPipeline(spec, common);
  const auto plan = PlanPipeline(spec, {.backend = "reference"});
  ASSERT_TRUE(of_run.ok() && plan.ok()) << of_run.status() << plan.status();
  EXPECT_EQ(plan->cuts, of_run->cuts);
  EXPECT_EQ(plan->prediction.step_seconds, 0);
  EXPECT_GT(of_run->prediction.step_seconds, 0);
}

TEST(StagePlans, ListTheLayersThatCudnnRefuses) {
  auto plan = PlanPipeline(Convnet(2), {.backend = "reference"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(PipelineText(*plan), ::testing::Not(HasSubstr("refused")));
  plan->stages[1].fallbacks = {{.layer = "conv2", .op = "conv2d", .reason = "it is odd"}};
  EXPECT_THAT(PipelineText(*plan),
              HasSubstr("cuDNN refused 1 operation, so slower kernels compute it:\n"
                        "  conv2 conv2d: it is odd\n"));
  const auto json = nlohmann::json::parse(PipelineJson(*plan));
  EXPECT_TRUE(json["stages"][0]["fallbacks"].empty());
  EXPECT_EQ(json["stages"][1]["fallbacks"][0]["layer"], "conv2");
}

}  // namespace
}  // namespace trainyard::trainer
