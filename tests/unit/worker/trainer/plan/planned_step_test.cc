// Tests the text and the JSON of `trainyard plan`, as the trainer writes them.
#include "worker/trainer/plan/planned_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "tests/unit/worker/trainer/gang_trainer.h"
#include "worker/engine/graph/passes.h"
#include "worker/trainer/plan/spec.h"
#include "worker/trainer/report/plan_report.h"
#include "worker/trainer/report/plan_text.h"
#include "worker/trainer/report/quantity_text.h"

namespace trainyard::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

JobText Small() {
  JobText job;
  job.model = R"({"convnet": {"channels": [4, 6]}})";
  job.train = R"({"epochs": 1, "global_batch": 8})";
  return job;
}

PlannedStep Report(const JobText& job, const PlanOptions& options) {
  const auto spec = ParseSpec(job.Spec());
  auto report = PlanStep(*spec, options);
  EXPECT_TRUE(report.ok()) << report.status();
  return report.ok() ? *std::move(report) : PlannedStep();
}

std::string Plan(const JobText& job, const PlanOptions& options) {
  const auto text = ReportPlan(job.Spec(), options);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

PlannedPass PassNamed(const PlannedStep& report, absl::string_view name) {
  for (const PlannedPass& pass : report.passes) {
    if (pass.name == name) return pass;
  }
  ADD_FAILURE() << "no pass " << name;
  return {};
}

// A machine of 1 GFLOP/s and 1 GB/s, with 1 MiB of memory. The rest depends only on the model.
TEST(PlanReport, IsATableForPeople) {
  PlannedStep report = Report(Small(), {.backend = "reference", .format = PlanFormat::kTable});
  report.memory_limit = 1 << 20;
  report.machine = {1e9, 1e9};
  for (PlannedOp& op : report.ops) op.seconds = op.cost.bytes / 1e9;
  std::stable_sort(report.ops.begin(), report.ops.end(),
                   [](const PlannedOp& a, const PlannedOp& b) { return a.op < b.op; });
  report.passes = {PassNamed(report, "fuse_relu")};
  EXPECT_EQ(absl::StrCat("\n", PlanTable(report)), R"(
3,212 parameters, 8 rows a device, 1 device, backend reference in f32 (auto), 1 thread
a step of        8 samples
takes about      949 us, 8.43 k samples/s, without communication
on a machine of  1.00 GFLOP/s, 954 MiB/s as measured now

op                              nodes  calls   FLOPs    moved     time
conv2d                              2      2  1.13 M  185 KiB   189 us
conv2d_input_gradient               1      1   677 k   62 KiB  63.6 us
conv2d_parameter_gradient           2      2  1.13 M  185 KiB   189 us
flatten                             1      1       -        -        -
flatten_gradient                    1      1       -        -        -
linear                              1      1  47.0 k   21 KiB  21.5 us
linear_input_gradient               1      1  47.0 k   21 KiB  21.5 us
linear_parameter_gradient           1      1  47.0 k   21 KiB  21.5 us
max_pool                            2      2  34.5 k  177 KiB   181 us
max_pool_gradient                   2      2  34.5 k  177 KiB   181 us
softmax_cross_entropy               1      1     960    680 B  0.68 us
softmax_cross_entropy_gradient      1      1     160    672 B  0.67 us
update                              -      1       -   77 KiB  78.6 us
total                              16     17  3.15 M  926 KiB   949 us

memory of a device
parameters    13 KiB
optimizer     13 KiB
gradients     13 KiB
activations  147 KiB
workspace     37 KiB
batches      172 KiB
checkpoint    76 KiB
total        471 KiB
fits: a device has 1.0 MiB

pass (off -> on)      kernels   moved               activations
fuse_relu         on  18 -> 16  1.1 MiB -> 850 KiB  147 KiB
)");
}

TEST(PlanReport, ListsTheLayersThatCudnnRefuses) {
  PlannedStep report = Report(Small(), {.backend = "reference"});
  EXPECT_THAT(MemoryText(report), Not(HasSubstr("refused")));
  report.fallbacks = {{.layer = "conv1", .op = "conv2d", .reason = "cuDNN has no plan"}};
  EXPECT_THAT(MemoryText(report),
              HasSubstr("cuDNN refused 1 operation, so slower kernels compute it:\n"
                        "  conv1 conv2d: cuDNN has no plan\n"));
  report.fallbacks.push_back({.layer = "conv2", .op = "conv2d", .reason = "it is odd"});
  EXPECT_THAT(PlanTable(report),
              HasSubstr("cuDNN refused 2 operations, so slower kernels compute them"));
  const auto json = nlohmann::json::parse(PlanJson(report));
  ASSERT_EQ(json["fallbacks"].size(), 2U);
  EXPECT_EQ(json["fallbacks"][1]["layer"], "conv2");
  EXPECT_EQ(json["fallbacks"][1]["op"], "conv2d");
  EXPECT_EQ(json["fallbacks"][1]["reason"], "it is odd");
}

TEST(PlanReport, ListsTheLayers) {
  const std::string layers = Plan(Small(), {.backend = "reference", .format = PlanFormat::kLayers});
  EXPECT_EQ(absl::StrCat("\n", layers), R"(
layer      op                     output       parameters   FLOPs
conv1      conv2d                 [4, 28, 28]          40  56.4 k
relu1      relu                   [4, 28, 28]           -  3.14 k
max_pool1  max_pool               [4, 14, 14]           -  3.14 k
conv2      conv2d                 [6, 14, 14]         222  84.7 k
relu2      relu                   [6, 14, 14]           -  1.18 k
max_pool2  max_pool               [6, 7, 7]             -  1.18 k
flatten1   flatten                [294]                 -       -
fc         linear                 [10]              2,950  5.88 k
loss       softmax_cross_entropy  [10]                  -     120
total                                               3,212   156 k
)");
}

TEST(PlanReport, SaysWhatWouldFit) {
  const std::string text =
      Plan(Small(), {.backend = "reference", .format = PlanFormat::kText, .memory_bytes = 300'000});
  EXPECT_THAT(text, AllOf(HasSubstr("does not fit: a device has 293 KiB\n  a batch of "),
                          HasSubstr("\n  so would "), Not(HasSubstr("the step needs"))));
}

TEST(PlanReport, CountsAsManyRowsAsTheBatchThatIsAskedFor) {
  const PlannedStep eight = Report(Small(), {.backend = "reference"});
  const auto json = nlohmann::json::parse(
      Plan(Small(), {.backend = "reference", .format = PlanFormat::kJson, .batch = 24}));
  EXPECT_EQ(eight.global_batch, 8);
  EXPECT_EQ(json["global_batch"], 24);
  EXPECT_GT(json["bytes"]["activations"].get<int64_t>(), 2 * eight.memory.activations);
}

TEST(PlanReport, AStepOfMicrobatchesTakesTheTimeOfAllItsRows) {
  JobText parts = Small();
  parts.more = R"(, "memory": {"microbatch": 2})";
  const PlannedStep whole = Report(Small(), {.backend = "reference", .format = PlanFormat::kTable});
  const PlannedStep split = Report(parts, {.backend = "reference", .format = PlanFormat::kTable});
  EXPECT_EQ(split.rows, 2);
  EXPECT_EQ(split.hosted_rows, 8);
  EXPECT_NEAR(split.Total().cost.flops, whole.Total().cost.flops, 0.01 * whole.Total().cost.flops);
}

TEST(PlanReport, TheTimeOfAnOpIsArithmeticOrTrafficOfThisMachine) {
  const PlannedStep report = Report(Small(), {.backend = "cpu", .format = PlanFormat::kTable});
  EXPECT_GT(report.machine.flops_per_second, 1e8);
  EXPECT_GT(report.machine.bytes_per_second, 1e8);
  const double fastest =
      std::max({report.machine.flops_per_second, report.machine.filtered_flops_per_second,
                report.machine.wide_filtered_flops_per_second});
  for (const PlannedOp& op : report.ops) {
    EXPECT_GE(op.seconds * 1.0001, op.cost.flops / fastest) << op.op;
    EXPECT_GE(op.seconds * 1.0001, op.cost.bytes / report.machine.bytes_per_second) << op.op;
  }
  EXPECT_TRUE(
      std::is_sorted(report.ops.begin(), report.ops.end(),
                     [](const PlannedOp& a, const PlannedOp& b) { return a.seconds > b.seconds; }));
  EXPECT_NEAR(report.samples_per_second(), 8 / report.Total().seconds, 1e-6);
}

TEST(PlanReport, EveryPassIsToldWithItsEffect) {
  const PlannedStep report =
      Report(Small(), {.backend = "reference", .format = PlanFormat::kTable});
  ASSERT_EQ(report.passes.size(), std::size(engine::kPasses));
  for (size_t i = 0; i < report.passes.size(); ++i) {
    EXPECT_EQ(report.passes[i].name, engine::kPasses[i].name);
    EXPECT_FALSE(report.passes[i].sentence.empty());
    EXPECT_EQ(report.passes[i].is_on, engine::PassOptions{}.*engine::kPasses[i].option);
  }
  const PlannedPass fuse_relu = PassNamed(report, "fuse_relu");
  EXPECT_EQ(fuse_relu.on.kernels, fuse_relu.off.kernels - 2);
  EXPECT_LT(fuse_relu.on.bytes_moved, fuse_relu.off.bytes_moved);
}

TEST(PlanReport, APassCanBeLeftOut) {
  const PlanOptions without = {
      .backend = "reference", .format = PlanFormat::kTable, .without = {"fuse_relu"}};
  const PlannedStep report = Report(Small(), without);
  EXPECT_FALSE(PassNamed(report, "fuse_relu").is_on);
  EXPECT_TRUE(std::any_of(report.ops.begin(), report.ops.end(),
                          [](const PlannedOp& op) { return op.op == "relu"; }));
  const auto status =
      ReportPlan(Small().Spec(), {.backend = "reference", .without = {"fuse_rely"}}).status();
  EXPECT_EQ(status.message(), "--without 'fuse_rely' names no pass; did you mean 'fuse_relu'?");
}

TEST(PlanReport, JsonHasEveryPart) {
  const auto json =
      nlohmann::json::parse(Plan(Small(), {.backend = "reference", .format = PlanFormat::kJson}));
  for (const char* field : {"name", "backend", "precision", "threads", "devices", "global_batch",
                            "rows", "rows_per_device", "parameters", "bytes", "memory_limit_bytes",
                            "fits", "machine", "step", "ops", "passes", "layers"}) {
    EXPECT_TRUE(json.contains(field)) << field;
  }
  double flops = 0;
  int64_t parameters = 0;
  int64_t bytes = 0;
  for (const auto& op : json["ops"]) flops += op["flops"].get<double>();
  for (const auto& layer : json["layers"]) parameters += layer["parameters"].get<int64_t>();
  for (const auto& [name, part] : json["bytes"].items()) {
    bytes += name == "total" ? 0 : part.get<int64_t>();
  }
  EXPECT_DOUBLE_EQ(json["step"]["flops"].get<double>(), flops);
  EXPECT_EQ(json["parameters"], parameters);
  EXPECT_EQ(json["bytes"]["total"], bytes);
}

// Checks the part of the grammar of Graphviz that we use: balanced braces, edges only between
// declared nodes, quotes closed on their line.
TEST(PlanReport, TheGraphIsWellFormed) {
  const std::string dot = Plan(Small(), {.backend = "reference", .format = PlanFormat::kDot});
  EXPECT_THAT(dot, StartsWith("digraph step {\n"));
  EXPECT_THAT(dot, AllOf(HasSubstr("label=\"conv1\\nconv2d"), HasSubstr("subgraph cluster_forward"),
                         HasSubstr("subgraph cluster_backward"),
                         HasSubstr("input -> n0 [label=\"[8, 1, 28, 28]\"];")));
  EXPECT_EQ(std::count(dot.begin(), dot.end(), '{'), std::count(dot.begin(), dot.end(), '}'));
  for (const absl::string_view line : absl::StrSplit(dot, '\n')) {
    EXPECT_EQ(std::count(line.begin(), line.end(), '"') % 2, 0) << line;
    const size_t arrow = line.find(" -> ");
    if (arrow == absl::string_view::npos) continue;
    const std::string from(line.substr(2, arrow - 2));
    const std::string to(line.substr(arrow + 4, line.find(' ', arrow + 4) - arrow - 4));
    for (const std::string& end : {from, to}) {
      EXPECT_THAT(dot, HasSubstr(absl::StrCat(end, " ["))) << line;
    }
  }
}

TEST(TextTable, ShortensNumbersToThreeDigits) {
  EXPECT_EQ(FormatQuantity(0), "0");
  EXPECT_EQ(FormatQuantity(999), "999");
  EXPECT_EQ(FormatQuantity(0.153), "0.15");
  EXPECT_EQ(FormatQuantity(999.6), "1.00 k");
  EXPECT_EQ(FormatQuantity(15'900'000'000), "15.9 G");
  EXPECT_EQ(FormatQuantity(272'474), "272 k");
  EXPECT_EQ(FormatSeconds(0.00124), "1.24 ms");
  EXPECT_EQ(FormatSeconds(83), "83.0 s");
  EXPECT_EQ(FormatSeconds(2.5e-7), "0.25 us");
}

}  // namespace
}  // namespace trainyard::trainer
