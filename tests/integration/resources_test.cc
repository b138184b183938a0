// Tests with the real programs how the processors and the memory of a host are divided among jobs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::trainyard::v1::Job;

// A program without a device that tells what it may use and waits for a file, at most a minute.
std::string Waits(const std::string& name, const std::string& resources, const std::string& file) {
  return absl::StrCat("name: ", name, "\ndevices: 0\nresources: ", resources,
                      "\nprogram:\n  script: |\n"
                      "    echo threads=$OMP_NUM_THREADS gpus=[$CUDA_VISIBLE_DEVICES]\n"
                      "    echo bound=$(nproc)\n"
                      "    for i in $(seq 600); do [ -e ",
                      file, " ] && exit 0; sleep 0.1; done\n    exit 1\n");
}

TEST(Resources, JobsShareAHostAndWaitForWhatIsShort) {
  Yard::Options options;
  options.cpu_devices = 2;
  Yard yard(std::move(options));
  yard.Start();
  yard.WaitForWorkers(1);
  const nlohmann::json host = yard.CliJson({"workers", "ls"})[0]["host"];
  const int64_t bytes = host["memory_bytes"].get<int64_t>();
  ASSERT_GE(host["cpus"].get<int>(), 2);

  // Three quarters of the memory, and then one half.
  const std::string first_done = yard.File("first");
  const std::string first = yard.Submit(
      Waits("first", absl::StrCat("{cpus: 1, memory: ", bytes / 4 * 3, " B}"), first_done));
  ASSERT_TRUE(
      yard.WaitForJob(first, [](const Job& job) { return job.state() == v1::JOB_STATE_RUNNING; }));
  const Job running = yard.GetJob(first);
  ASSERT_EQ(running.placement_size(), 1);
  EXPECT_EQ(running.placement(0).device(), "");
  EXPECT_EQ(running.placement(0).cpus(), 1);
  EXPECT_EQ(running.placement(0).memory_bytes(), bytes / 4 * 3);
  EXPECT_THAT(yard.Cli({"workers", "ls"}).out, HasSubstr(absl::StrCat("1/", host["cpus"].dump())));

  const std::string second =
      yard.Submit(Waits("second", absl::StrCat("{memory: ", bytes / 2, " B}"), yard.File("first")));
  EXPECT_TRUE(yard.WaitForJob(second, [](const Job& job) {
    return job.queue_reasons_size() > 0 || job.state() != v1::JOB_STATE_QUEUED;
  }));
  EXPECT_THAT(yard.Cli({"explain", second}).out,
              AllOf(HasSubstr("of memory is free on alpha"), HasSubstr("resources.memory")));

  // A request that no host can hold is refused, and so is a model without a device.
  const std::string large = yard.File("large.yaml");
  ASSERT_TRUE(ReplaceFile(large, Waits("large", "{cpus: 4000}", first_done)).ok());
  const ProcessResult refused = yard.Cli({"submit", large});
  EXPECT_EQ(refused.exit_code, 6) << refused.err;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("4000 cpus"), HasSubstr("the largest host has")));
  const std::string model = yard.File("model.yaml");
  ASSERT_TRUE(ReplaceFile(model, "devices: 0\nmodel: {mlp: {}}\n").ok());
  EXPECT_THAT(yard.Cli({"submit", model}).err, HasSubstr("0 devices are for a program alone"));

  ASSERT_TRUE(ReplaceFile(first_done, "").ok());
  EXPECT_EQ(yard.WaitForEnd(first).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(yard.WaitForEnd(second).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(yard.Cli({"logs", first}).out,
              AllOf(HasSubstr("threads=1 gpus=[]"), HasSubstr("bound=1")));
}

}  // namespace
}  // namespace trainyard::testing
