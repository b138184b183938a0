// Reads traces through the client, as users would.
#include "tests/integration/traces.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"

namespace trainyard::testing {

Trace TraceOf(Yard& yard, const std::string& job) {
  Trace trace;
  std::set<std::pair<int32_t, int64_t>> seen;
  for (const v1::MetricPoint& point : yard.Metrics(job, "train.loss")) {
    const auto [known, is_new] = trace.losses.insert({point.step(), point.value()});
    if (known->second != point.value()) ++trace.different;
    if (!seen.insert({point.attempt(), point.step()}).second) ++trace.doubled;
  }
  const std::string out = yard.File(absl::StrCat("weights-", job.substr(job.find('/') + 1)));
  EXPECT_TRUE(RemoveTree(out).ok());  // of an earlier call
  EXPECT_EQ(yard.Cli({"checkpoints", "get", job, "-O", out}).exit_code, 0);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(out)) {
    if (!absl::EndsWith(entry.path().string(), ".safetensors")) continue;
    trace.weights[entry.path().filename()] = ReadFile(entry.path().string()).value_or("");
  }
  return trace;
}

void ExpectNoTrace(const Trace& disturbed, const Trace& undisturbed, int64_t steps) {
  EXPECT_EQ(disturbed.losses.size(), static_cast<size_t>(steps));
  EXPECT_EQ(disturbed.losses, undisturbed.losses);
  EXPECT_EQ(disturbed.doubled, 0);
  EXPECT_EQ(disturbed.different, 0);
  EXPECT_EQ(disturbed.weights.size(), 2U);
  EXPECT_TRUE(disturbed.weights == undisturbed.weights) << "other weights";
}

}  // namespace trainyard::testing
