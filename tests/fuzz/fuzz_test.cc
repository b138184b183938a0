// Runs the fuzz targets without libFuzzer: over the inputs that are kept, among them all that once
// broke something, and over some mutations of them, which are the same in each run.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "server/access/rules.h"
#include "tests/fuzz/service.h"
#include "tests/fuzz/target.h"
#include "tests/testing/paths.h"

namespace trainyard::fuzz {
namespace {

// All targets together take some seconds.
constexpr uint32_t kMutations = 400;
constexpr uint32_t kSlowMutations = 25;

// Returns TRAINYARD_FUZZ_FACTOR, which multiplies the mutations and makes others of them, or 1.
uint32_t Factor() {
  const char* text = getenv("TRAINYARD_FUZZ_FACTOR");
  uint32_t factor = 1;
  if (text != nullptr && !absl::SimpleAtoi(text, &factor)) factor = 1;
  return factor;
}

// The folder is absent where a target has no such inputs.
std::vector<std::string> ReadInputs(const std::string& folder) {
  std::vector<std::string> inputs;
  const std::string path = testing::SourcePath(absl::StrCat("tests/fuzz/", folder));
  const auto names = ListDirectory(path);
  if (!names.ok()) return inputs;
  for (const std::string& name : *names) inputs.push_back(*ReadFile(JoinPath(path, name)));
  return inputs;
}

// Changes, removes, repeats or inserts some bytes.
void Mutate(std::mt19937& random, std::string& input) {
  const size_t changes = 1 + random() % 4;
  for (size_t i = 0; i < changes; ++i) {
    const size_t at = random() % (input.size() + 1);
    const size_t count = random() % 16;
    switch (random() % 4) {
      case 0:
        input.erase(at, count);
        break;
      case 1:
        input.insert(at, input.substr(random() % (input.size() + 1), count));
        break;
      case 2:
        for (size_t j = 0; j <= count; ++j) input.insert(at, 1, static_cast<char>(random()));
        break;
      default:
        if (at < input.size()) input[at] = static_cast<char>(random());
    }
  }
}

// Keeps the input that runs now in a file, if a folder for it is given: it is the one that ended
// the process.
void Remember(const std::string& input) {
  const char* folder = getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  if (folder == nullptr) return;
  ASSERT_TRUE(ReplaceFile(JoinPath(folder, "fuzz_input"), input).ok());
}

class FuzzTest : public ::testing::TestWithParam<Target> {};

TEST_P(FuzzTest, KeptInputsAndTheirMutationsBreakNothing) {
  const Target& target = GetParam();
  std::vector<std::string> inputs = ReadInputs("corpus/" + target.name);
  ASSERT_FALSE(inputs.empty());
  for (std::string& input : ReadInputs("regressions/" + target.name)) {
    inputs.push_back(std::move(input));
  }
  inputs.emplace_back();
  for (const std::string& input : inputs) RunWithinLimits(target, input, Timing::kIgnored);

  std::mt19937 random(Factor());
  const uint32_t mutations = (target.is_slow ? kSlowMutations : kMutations) * Factor();
  for (uint32_t i = 0; i < mutations; ++i) {
    std::string input = inputs[random() % inputs.size()];
    Mutate(random, input);
    Remember(input);
    RunWithinLimits(target, input, Timing::kIgnored);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzTest, ::testing::ValuesIn(Targets()),
                         [](const auto& target) { return target.param.name; });

// Streams, and the one call that sends something to others.
constexpr absl::string_view kNotUnary[] = {"AgentService/FetchCheckpoint",
                                           "AgentService/FetchCode",
                                           "AgentService/ServeTunnel",
                                           "CheckpointService/DownloadCheckpoint",
                                           "CheckpointService/DownloadOutput",
                                           "CodeService/DownloadCode",
                                           "JobService/CreateJobs",
                                           "JobService/TailLogs",
                                           "JobService/WatchJobs",
                                           "JobService/WatchMetrics",
                                           "NotifyService/TestTarget",
                                           "TunnelService/OpenTunnel"};

TEST(FuzzService, CallsAllUnaryMethods) {
  std::set<absl::string_view> called(std::begin(kNotUnary), std::end(kNotUnary));
  for (const Service::Method& method : Service::UnaryMethods()) called.insert(method.name);
  std::set<absl::string_view> all;
  for (const access::Rule& rule : access::kRules) all.insert(rule.rpc);
  EXPECT_EQ(called, all);
}

}  // namespace
}  // namespace trainyard::fuzz
