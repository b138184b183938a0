// Tests that the bundle for a GPU machine starts from its own folder, finds its libraries, and says
// what it lacks if there is no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/files.h"
#include "tests/testing/paths.h"
#include "tests/testing/process.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(GpuBundle, LeavesASummaryWithoutAGpu) {
  if (std::filesystem::exists("/dev/nvidiactl")) {
    GTEST_SKIP() << "there is a GPU: scripts/gpu_bench.sh would measure it";
  }
  const TempDir folder;
  Process::Options bundle;
  bundle.args = {testing::SourcePath("scripts/gpu_bundle.sh"),
                 testing::BinaryPath(""),
                 folder.File("bundle"),
                 "cuda_repeated_steps_on_gpu",
                 "bench_gpu",
                 "trainyard-probe"};
  bundle.environment = {{"XZ_PRESET", "0"}};
  const absl::StatusOr<ProcessResult> made = RunProcess(bundle, folder.path(), absl::Seconds(200));
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->exit_code, 0) << made->out << made->err;

  Process::Options session;
  session.args = {folder.File("bundle/run.sh"), folder.File("out")};
  session.environment = {{"SECONDS_MAX", "60"}};
  const absl::StatusOr<ProcessResult> done = RunProcess(session, folder.path(), absl::Seconds(90));
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->exit_code, 0) << done->out << done->err;
  const absl::StatusOr<std::string> summary = ReadFile(folder.File("out/summary.md"));
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_THAT(*summary, HasSubstr("| cuda_repeated_steps_on_gpu | ok | 0 | 0 | 1 |"));
  EXPECT_THAT(*summary, HasSubstr("no NVIDIA driver answers"));
  EXPECT_THAT(*summary, HasSubstr("Benchmarks ended with status 0"));
  // machine.txt lists where each library was looked for.
  EXPECT_THAT(*summary, Not(HasSubstr("not found")));
  EXPECT_THAT(ReadFile(folder.File("out/machine.txt")).value_or(""), HasSubstr("libraries: "));
}

}  // namespace
}  // namespace trainyard::testing
