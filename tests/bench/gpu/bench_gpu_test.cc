// Tests the programs that measure on a GPU, on the emulated device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "nlohmann/json.hpp"
#include "tests/testing/paths.h"
#include "tests/testing/process.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(200);

std::string Program(const std::string& name) {
  return testing::BinaryPath(name);
}

class GpuBench : public ::testing::Test {
 protected:
  ProcessResult Run(std::vector<std::string> args, const std::string& input = "") {
    Process::Options options;
    options.args = std::move(args);
    if (!input.empty()) {
      folder_.Write("input", input);
      options.stdin_path = folder_.File("input");
    }
    const absl::StatusOr<ProcessResult> result =
        RunProcess(std::move(options), folder_.path(), kPatience);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : ProcessResult();
  }

  nlohmann::json Json(const std::string& name) {
    const absl::StatusOr<std::string> text = ReadFile(folder_.File(name));
    EXPECT_TRUE(text.ok()) << text.status();
    return nlohmann::json::parse(text.value_or(""), nullptr, /*allow_exceptions=*/false);
  }

  const TempDir folder_;
  const std::vector<std::string> small_rates_ = {
      "--roofline", "--copy-mib", "1", "--matrix", "32", "--nodes", "10", "--rate-seconds", "0"};
};

TEST_F(GpuBench, TellsWhereTheTimeOfAStepGoes) {
  std::vector<std::string> args = {Program("bench_gpu_on_cpu"),
                                   "--net",
                                   "smoke",
                                   "--batch",
                                   "4",
                                   "--steps",
                                   "2",
                                   "--runs",
                                   "2",
                                   "--resident",
                                   "--profile",
                                   "--profile-runs",
                                   "1",
                                   "--json",
                                   folder_.File("step.json")};
  args.insert(args.end(), small_rates_.begin(), small_rates_.end());
  const ProcessResult result = Run(args);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("| copies by our kernel |"));
  EXPECT_THAT(result.out, HasSubstr("smoke bf16 batch 4, resident inputs, as a graph"));
  EXPECT_THAT(result.out, HasSubstr("| conv2d_parameter_gradient | 2 |"));
  EXPECT_THAT(result.out, HasSubstr("| bn1 batch_norm+relu | 1 |"));

  const nlohmann::json file = Json("step.json");
  EXPECT_GT(file["rates"]["flops_per_second"]["bf16"], 0);
  const nlohmann::json& step = file["step"];
  EXPECT_GT(step["seconds_per_step"], 0);
  EXPECT_EQ(step["runs"].size(), 2);
  // Profile times the calls that the graph contains, and also the update's kernels.
  EXPECT_GE(step["graph_nodes"], step["calls"]);
  EXPECT_EQ(step["work"]["total"]["calls"], step["calls"].get<int>() + 1);
  // There is one forward, and two backward products except for the input, with 2 flops for each
  // multiplication and 4 rows.
  const double conv1 = 2.0 * 4 * 8 * 8 * 8 * 27, conv2 = 2.0 * 4 * 4 * 4 * 8 * 72;
  const double products = 2 * conv1 + 3 * conv2;
  double counted = 0, roofline = 0;
  for (const nlohmann::json& op : step["work"]["ops"]) {
    if (op["name"].get<std::string>().starts_with("conv2d")) counted += op["flops"].get<double>();
    roofline += op["roofline_seconds"].get<double>();
  }
  EXPECT_EQ(counted, products);
  EXPECT_NEAR(roofline, step["work"]["total"]["roofline_seconds"].get<double>(), 1e-9);
  EXPECT_GT(roofline, 0);
}

TEST_F(GpuBench, ComparesTheCandidatesOfEachPlan) {
  const std::vector<std::string> args = {Program("bench_gpu_on_cpu"),
                                         "--net",
                                         "smoke",
                                         "--batch",
                                         "4",
                                         "--steps",
                                         "2",
                                         "--runs",
                                         "1",
                                         "--verify-plans",
                                         "--plans",
                                         folder_.File("plans"),
                                         "--json",
                                         folder_.File("step.json")};
  // The second run finds plans in the folder, and compares again.
  for (int run = 0; run < 2; ++run) {
    const ProcessResult result = Run(args);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out,
                HasSubstr("42 candidates of 13 were compared, of 9 with our own kernels, "
                          "0 refused"));
    const nlohmann::json plans = Json("step.json")["step"]["plans"];
    ASSERT_EQ(plans.size(), 13);
    for (const nlohmann::json& plan : plans) {
      EXPECT_EQ(plan["verified"], true) << plan;
      // The gradient of a bias has candidates with and without cuBLASLt's sums.
      const auto problem = plan["problem"].get<std::string>();
      EXPECT_EQ(plan["candidates"], problem.ends_with("d32 sumA") ? 6 : 3) << plan;
      EXPECT_LE(plan["difference"], 1) << plan;
      EXPECT_EQ(plan["disputed"], false) << plan;
      // The products are cuBLASLt's.
      const bool is_product = plan["engine"].get<std::string>().starts_with("proposal ");
      EXPECT_EQ(plan["compared_with"], is_product ? "each other" : "our own kernel") << plan;
      EXPECT_NE(plan["engine"], "") << plan;
    }
  }
  const ProcessResult refused =
      Run({args[0], "--net", "smoke", "--verify-plans", "--no-autotuning"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("leave out --no-autotuning"));
}

TEST_F(GpuBench, AnswersEachLineAndTakesRatesFromAFile) {
  std::vector<std::string> args = {Program("bench_gpu_on_cpu"), "--json",
                                   folder_.File("rates.json")};
  args.insert(args.end(), small_rates_.begin(), small_rates_.end());
  ASSERT_EQ(Run(args).exit_code, 0);
  // Its few positions are none for cuDNN's attention.
  args = {Program("bench_gpu_on_cpu"),
          "--net",
          "gpt2-smoke",
          "--batch",
          "2",
          "--steps",
          "1",
          "--serve",
          "--rates",
          folder_.File("rates.json"),
          "--json",
          folder_.File("step.json")};
  const ProcessResult refused = Run(args, "run\n");
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("attention1 attention: "));
  EXPECT_EQ(Json("step.json")["step"]["fallbacks"][0]["op"], "attention");
  args.push_back("--allow-fallbacks");
  const ProcessResult result = Run(args, "run\nrun\nrun\n");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\nready\n"));
  EXPECT_THAT(result.out, HasSubstr("tokens/s"));
  EXPECT_THAT(result.out, HasSubstr("roofline:"));
  EXPECT_EQ(Json("step.json")["step"]["runs"].size(), 3);
}

TEST_F(GpuBench, RefusesWhatItDoesNotKnow) {
  const std::string program = Program("bench_gpu_on_cpu");
  EXPECT_THAT(Run({program}).err, HasSubstr("expected --net or --roofline"));
  EXPECT_THAT(Run({program, "--net", "resnet51"}).err, HasSubstr("expected one of alexnet"));
  folder_.Write("rates.json", R"({"rates": {"copy_bytes_per_second": 1}})");
  EXPECT_THAT(Run({program, "--net", "smoke", "--rates", folder_.File("rates.json")}).err,
              HasSubstr("has no rates"));
}

TEST_F(GpuBench, ComparesWithPyTorch) {
  if (Run({"/usr/bin/python3", "-c", "import torch"}).exit_code != 0) {
    GTEST_SKIP() << "PyTorch is not installed (scripts/install_deps.sh --peers)";
  }
  const ProcessResult result = Run(
      {"/usr/bin/python3", "-B", testing::SourcePath("tests/bench/bench_gpu.py"), "--device", "cpu",
       "--bin", testing::BinaryPath(""), "--out", folder_.File("out"), "--nets", "smoke:4"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("| smoke:4 |"));
  const nlohmann::json results = Json("out/results.json");
  const nlohmann::json& net = results["nets"]["smoke:4"];
  EXPECT_GT(net["peers"]["eager"]["ms"][0], 0);
  EXPECT_GT(net["peers"]["eager, channels_last"]["ms"][0], 0);
  EXPECT_EQ(net["others"].size(), 6);
  // The error is recorded: there are no CUDA graphs here.
  EXPECT_THAT(results["failures"].dump(), HasSubstr("a CPU has no CUDA graphs"));
}

}  // namespace
}  // namespace trainyard::testing
