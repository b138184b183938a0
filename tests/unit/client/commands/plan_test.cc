// Tests `trainyard plan` with the real trainer and without a server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "nlohmann/json.hpp"
#include "tests/testing/paths.h"
#include "tests/unit/client/command_runner.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr char kPlannedSpec[] =
    "name: small\nmodel: {mlp: {hidden: [16]}}\ndata: {dataset: glyphs}\n"
    "train: {epochs: 1}\noptimizer: {sgd: {lr: 0.1}}\n";

class Plan : public ::testing::Test {
 protected:
  Plan() { runner_.surroundings.binary_dir = testing::BinaryPath(""); }

  CommandRunner runner_{"unix:/no/such/socket"};
  const std::string spec_ = runner_.home.Write("job.yaml", kPlannedSpec);
};

TEST_F(Plan, TellsTimeAndMemoryWithoutAServer) {
  const CommandResult result = runner_.Run({"plan", spec_});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(
          StartsWith("12,730 parameters, 64 rows a device, 1 device, backend cpu in f32 (auto), "),
          HasSubstr("\nop "), HasSubstr("\nmemory of a device\n"),
          HasSubstr("\nfits: a device has "), HasSubstr("\nfuse_relu "), HasSubstr(" samples/s")));
  EXPECT_THAT(result.err, IsEmpty());
}

TEST_F(Plan, AnswersWhatIf) {
  const CommandResult result = runner_.Run(
      {"plan", spec_, "--batch", "24", "--backend", "reference", "--json", "--devices", "2",
       "--set", "memory.microbatch=5", "--threads", "2", "--without", "reuse_in_place"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["global_batch"], 24);
  EXPECT_EQ(json["rows_per_device"], 12);
  EXPECT_EQ(json["rows"], 5);
  EXPECT_EQ(json["backend"], "reference");
  EXPECT_EQ(json["threads"], 2);
  for (const auto& pass : json["passes"]) {
    if (pass["name"] == "reuse_in_place") {
      EXPECT_EQ(pass["on"], false);
    }
  }
  EXPECT_EQ(runner_.Run({"plan", spec_, "-o", "json"}).out[0], '{');
}

TEST_F(Plan, DrawsTheGraphAndListsTheLayers) {
  EXPECT_THAT(runner_.Run({"plan", spec_, "--dot"}).out, StartsWith("digraph step {\n"));
  EXPECT_THAT(runner_.Run({"plan", spec_, "--layers"}).out,
              AllOf(StartsWith("layer "), HasSubstr("12,560"), HasSubstr("\ntotal ")));
}

TEST_F(Plan, MistakesHaveTheirPlaceAndNothingIsPlanned) {
  const std::string bad = runner_.home.Write("bad.yaml", std::string(kPlannedSpec) + "memry: {}\n");
  const CommandResult result = runner_.Run({"plan", bad});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("bad.yaml:6:1: memry: unknown key"),
                                HasSubstr("nothing was planned")));
  EXPECT_THAT(result.out, IsEmpty());
  const CommandResult large = runner_.Run({"plan", spec_, "--batch", "100000"});
  EXPECT_EQ(large.exit_code, 2);
  EXPECT_THAT(large.err, AllOf(HasSubstr("train.global_batch: 100000 is more than the 20000"),
                               HasSubstr("nothing was planned")));
}

TEST_F(Plan, ErrorsOfTheTrainerAreToldAsTheyStand) {
  const CommandResult pass = runner_.Run({"plan", spec_, "--without", "fuse_rely"});
  EXPECT_EQ(pass.exit_code, 2);
  EXPECT_EQ(pass.err, "error: --without 'fuse_rely' names no pass; did you mean 'fuse_relu'?\n");
  const CommandResult backend = runner_.Run({"plan", spec_, "--backend", "abacus"});
  EXPECT_THAT(backend.err, HasSubstr("error: backend 'abacus'; expected one of cpu"));
}

TEST_F(Plan, WithoutATrainerItSaysWhereItLooked) {
  runner_.surroundings.binary_dir = runner_.home.path();
  const CommandResult result = runner_.Run({"plan", spec_});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr(runner_.home.path() + "/trainyard-trainer"));
}

}  // namespace
}  // namespace trainyard::testing
