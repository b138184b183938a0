// Tests that a process that compiles and trains grows by what the plan says.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

// The plan may be wrong by this much, or by this share of it.
constexpr int64_t kTolerance = 8 << 20;
constexpr double kToleranceShare = 0.03;

// The most memory that this process ever held.
int64_t PeakResidentBytes() {
  const absl::StatusOr<std::string> status = ReadFile("/proc/self/status");
  for (const absl::string_view line : absl::StrSplit(status.value_or(""), '\n')) {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(": \t"), absl::SkipEmpty());
    int64_t kibibytes = 0;
    if (words.size() == 3 && words[0] == "VmHWM" && absl::SimpleAtoi(words[1], &kibibytes)) {
      return kibibytes << 10;
    }
  }
  return 0;
}

struct Growth {
  int64_t planned = 0;
  int64_t measured = 0;
};

// The child makes three steps, one of them with the smaller last batch of an epoch, and an
// evaluation.
bool Train(const Graph& model, int64_t rows, Growth& growth) {
  const testing::TestBatch batch = testing::RandomBatch(1, model, rows);
  const testing::TestBatch last = batch.Rows(0, rows / 2 + 1);
  const int64_t before = PeakResidentBytes();
  const std::unique_ptr<Executable> executable =
      testing::Compile("cpu", model, {.momentum = 0.9}, {.max_rows = rows});
  growth.planned = executable->memory_plan().total();
  for (int step = 0; step < 4; ++step) {
    const Batch now = (step < 3 ? batch : last).batch();
    if (!executable->Accumulate(now, 1, nullptr).ok() || !executable->Update(0.01).ok() ||
        !executable->Evaluate(now).ok()) {
      return false;
    }
  }
  growth.measured = PeakResidentBytes() - before;
  return before > 0;
}

// This runs in a process of its own, whose memory no other test has touched.
void ExpectGrowthAsPlanned(const std::string& name, const Graph& model, int64_t rows) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Growth growth;
    const bool trained = Train(model, rows, growth);
    const bool told = write(pipe_ends[1], &growth, sizeof(growth)) == sizeof(growth);
    _exit(trained && told ? 0 : 1);
  }
  close(pipe_ends[1]);
  Growth growth;
  const ssize_t got = read(pipe_ends[0], &growth, sizeof(growth));
  close(pipe_ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << name << ": status " << status;
  ASSERT_EQ(got, static_cast<ssize_t>(sizeof(growth)));
  const auto allowed = std::max(
      kTolerance, static_cast<int64_t>(kToleranceShare * static_cast<double>(growth.planned)));
  ::testing::Test::RecordProperty(name, std::to_string(growth.measured - growth.planned));
  EXPECT_NEAR(static_cast<double>(growth.measured), static_cast<double>(growth.planned),
              static_cast<double>(allowed))
      << name;
}

TEST(ProcessMemory, OfNetsOfAllKindsIsAsPlanned) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers take memory of their own";
#endif
  ExpectGrowthAsPlanned("mlp", *BuildMlp({.input = {784}, .hidden = {512, 512}}), 64);
  ExpectGrowthAsPlanned("convnet", *BuildConvnet({.input = {3, 32, 32}}), 32);
  ExpectGrowthAsPlanned(
      "resnet20",
      *BuildResnet({.input = {3, 32, 32}, .depth = 20, .stem = Stem::kCifar, .classes = 10}), 16);
  ExpectGrowthAsPlanned(
      "wide_resnet",
      *BuildWideResnet({.input = {3, 32, 32}, .depth = 16, .width = 2, .classes = 10}), 8);
  ExpectGrowthAsPlanned("alexnet",
                        *BuildAlexnet({.input = {3, 96, 96}, .classes = 10, .dropout = 0.5}), 8);
  ExpectGrowthAsPlanned(
      "googlenet",
      *BuildGooglenet({.input = {3, 32, 32}, .stem = Stem::kCifar, .classes = 10, .dropout = 0.2}),
      4);
  ExpectGrowthAsPlanned("resnet50",
                        *BuildResnet({.input = {3, 64, 64}, .depth = 50, .classes = 10}), 4);
}

}  // namespace
}  // namespace trainyard::engine
