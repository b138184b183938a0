// Tests trainyard-trainer-cuda without a GPU. Every machine is without the GPU of a UUID that no
// GPU has. The tests are skipped if the program is not built.
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/paths.h"
#include "tests/testing/process.h"
#include "tests/testing/temp_dir.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/records.h"

namespace trainyard::trainer {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// The libraries of CUDA are large, and the machine may be busy.
constexpr absl::Duration kPatience = absl::Seconds(60);

const std::string kProgram = testing::BinaryPath("trainyard-trainer-cuda");

class CudaProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!FileExists(kProgram)) GTEST_SKIP() << "trainyard-trainer-cuda is not built: no CUDA";
  }

  testing::ProcessResult Run(std::vector<std::string> arguments,
                             const std::string& visible_devices = "GPU-none") {
    testing::Process::Options options;
    options.args = {kProgram};
    options.args.insert(options.args.end(), arguments.begin(), arguments.end());
    options.environment = {{"XDG_CACHE_HOME", folder_.File("cache")},
                           {"CUDA_VISIBLE_DEVICES", visible_devices}};
    const auto result = testing::RunProcess(std::move(options), folder_.path(), kPatience);
    TY_CHECK_OK(result.status());
    return *result;
  }

  std::string WriteSpec() {
    return folder_.Write("spec.json",
                         R"({"model": {"convnet": {"channels": [8, 16]}},
                             "data": {"dataset": "glyphs"}, "train": {"epochs": 1},
                             "optimizer": {"sgd": {"lr": 0.1}}})");
  }

  testing::TempDir folder_;
};

const auto kNoGpu = AllOf(AnyOf(HasSubstr("no NVIDIA driver"), HasSubstr("shows no GPU")),
                          HasSubstr("train on the CPU"));

TEST_F(CudaProgram, HelpVersionAndDataNeedNoGpu) {
  EXPECT_THAT(Run({"--version"}).out, HasSubstr("trainyard-trainer-cuda 0."));
  EXPECT_THAT(Run({"--help"}).out, HasSubstr("--plan_cache"));
  TY_CHECK_OK(MakeDirectories(folder_.File("data")));
  const testing::ProcessResult data = Run({"--data", "ls", "--dataset_dir", folder_.File("data")});
  EXPECT_EQ(data.exit_code, 0) << data.err;
}

TEST_F(CudaProgram, ATrainingWithoutItsGpuIsTransientAndSaysWhatToDo) {
  const run_dir::RunDir dir(folder_.File("run"));
  TY_CHECK_OK(MakeDirectories(dir.root()));
  run_dir::Assignment assignment;
  assignment.backend = "cuda";
  assignment.spec_json = ReadFile(WriteSpec()).value();
  assignment.ranks = {{.rank = 0, .device = "GPU-00000000-0000-0000-0000-000000000000"}};
  TY_CHECK_OK(run_dir::WriteAssignment(dir, assignment));
  // The assignment decides which GPU it is, whatever GPUs the process sees.
  EXPECT_EQ(Run({"--run_dir", dir.root(), "--rank", "0"}, "0").exit_code, run_dir::kExitTransient);
  const auto result = run_dir::ReadRankResult(dir, 0);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->outcome, run_dir::Outcome::kTransient);
  EXPECT_THAT(result->message, kNoGpu);
}

TEST_F(CudaProgram, APlanNeedsAGpuOrADescription) {
  const std::string spec = WriteSpec();
  const testing::ProcessResult without = Run({"--plan", spec});
  EXPECT_EQ(without.exit_code, run_dir::kExitTransient);
  EXPECT_THAT(without.err, kNoGpu);
  const testing::ProcessResult with =
      Run({"--plan", spec, "--device_description",
           testing::SourcePath("tests/data/devices/h200.json"), "--format", "table"});
  EXPECT_EQ(with.exit_code, 0) << with.err;
  EXPECT_THAT(with.out, HasSubstr("backend cuda in bf16 (auto)"));
  EXPECT_THAT(with.out, HasSubstr("fits: a device has 140 GiB"));
  EXPECT_FALSE(absl::StrContains(with.out, "takes about")) << "nothing was measured";
  EXPECT_FALSE(absl::StrContains(with.out, "checkpoint")) << "it lies in the host's memory";
  EXPECT_TRUE(std::filesystem::is_empty(folder_.File("cache/trainyard/cudnn_plans")))
      << "a plan that is only estimated was kept";
}

TEST_F(CudaProgram, ADescriptionThatIsNoneIsTheUsersError) {
  const std::string description = folder_.Write("device.json", "{}");
  const testing::ProcessResult result =
      Run({"--plan", WriteSpec(), "--device_description", description});
  EXPECT_EQ(result.exit_code, run_dir::kExitUserError);
  EXPECT_THAT(result.err, HasSubstr("totalGlobalMem"));
}

TEST_F(CudaProgram, APlanCacheThatCannotBeWrittenIsDoneWithout) {
  const std::string file = folder_.Write("file", "");
  const testing::ProcessResult result =
      Run({"--plan", WriteSpec(), "--plan_cache", absl::StrCat(file, "/plans"),
           "--device_description", testing::SourcePath("tests/data/devices/h200.json")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("are not kept"));
}

// A machine without CUDA can start it.
TEST(CpuProgram, NeedsNoLibraryOfCuda) {
  const std::string program = ReadFile(testing::BinaryPath("trainyard-trainer")).value();
  for (const char* library : {"libcudnn", "libcublas", "libnccl", "libcudart"}) {
    EXPECT_FALSE(absl::StrContains(program, library)) << library;
  }
}

}  // namespace
}  // namespace trainyard::trainer
