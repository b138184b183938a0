// Tests `trainyard plan` with the real trainer and without a server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "client/commands/trainer_plan.h"
#include "client/spec_loader/spec_file.h"
#include "common/spec/resolve.h"
#include "nlohmann/json.hpp"
#include "tests/testing/paths.h"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

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

TEST_F(Plan, IsForTheDevicesOfThePoolIfAServerAnswers) {
  FakeServer server;
  CommandRunner runner{server.address()};
  runner.surroundings.binary_dir = testing::BinaryPath("");
  EXPECT_THAT(runner.Run({"plan", spec_}).err,
              HasSubstr("no device of the pool suits the spec; planned for this machine"));
  v1::Worker worker;
  worker.set_name("workers/lab-1");
  v1::Device& device = *worker.add_devices();
  device.set_type("cpu");
  device.set_memory_bytes(int64_t{1} << 20);
  server.AddWorker(worker);
  const CommandResult pool = runner.Run({"plan", spec_});
  EXPECT_EQ(pool.exit_code, 0) << pool.err;
  EXPECT_THAT(pool.out, HasSubstr("\ndoes not fit: a device has 1.0 MiB\n"));
  EXPECT_THAT(pool.err, HasSubstr("the pool, which has 1 device of type cpu with 1.0 MiB"));
  const CommandResult local = runner.Run({"plan", spec_, "--local"});
  EXPECT_THAT(local.out, HasSubstr("\nfits: a device has "));
  EXPECT_THAT(local.err, IsEmpty());
  EXPECT_THAT(runner.Run({"plan", spec_, "--set", "devices.type=h200"}).err,
              HasSubstr("no device of the pool suits"));
}

TEST_F(Plan, TheLeastMemoryIsThatOfOneReplicaAtATime) {
  const auto ask = [this](const std::string& more, const std::string& format) {
    const auto spec =
        spec_loader::ReadSpecFile(runner_.home.Write("ask.yaml", std::string(kPlannedSpec) + more));
    const auto resolved = spec::ResolveSpec(spec->spec);
    const auto answer = commands::AskTrainerForPlan(testing::BinaryPath(""), *resolved,
                                                    {"--format", format}, absl::Minutes(1));
    EXPECT_TRUE(answer.ok()) << answer.status();
    return nlohmann::json::parse(*answer);
  };
  const auto need = ask("", "need");
  const auto plan = ask("", "json");
  EXPECT_EQ(need["host_bytes"], plan["bytes"]["total"]);
  EXPECT_EQ(need["gpu_bytes"], plan["bytes"]["parameters"].get<int64_t>() +
                                   plan["bytes"].value("optimizer", int64_t{0}));
  EXPECT_EQ(ask("devices: 2\nstages: 2\n", "need")["host_bytes"], 0)
      << "what a stage needs depends on where the network is cut";
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
