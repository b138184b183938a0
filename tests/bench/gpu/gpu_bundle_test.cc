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
  session.args = {folder.File("bundle/run.sh"), "--part", "tests", folder.File("out")};
  session.environment = {{"SECONDS_MAX", "60"}};
  const absl::StatusOr<ProcessResult> done = RunProcess(session, folder.path(), absl::Seconds(90));
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->exit_code, 1) << done->out << done->err;
  const absl::StatusOr<std::string> summary = ReadFile(folder.File("out/summary.md"));
  ASSERT_TRUE(summary.ok()) << summary.status();
  // All libraries were found.
  EXPECT_THAT(*summary, HasSubstr("| machine | passed |"));
  EXPECT_THAT(*summary, HasSubstr("| test cuda_repeated_steps | skipped |"));
  EXPECT_THAT(*summary, HasSubstr("no NVIDIA driver answers"));
  EXPECT_THAT(*summary, HasSubstr("| candidates agree resnet50:256 bf16 | failed |"));
}

}  // namespace
}  // namespace trainyard::testing
