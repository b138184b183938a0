// Tests the files in which cuDNN's plans are kept, which may hold anything. cuDNN itself takes no
// part.
#include "worker/engine/backend/cuda/dnn/plan_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/files.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::engine::cuda::dnn {
namespace {

CachedPlan PlanOf(const std::string& json) {
  CachedPlan plan;
  plan.json = json;
  plan.facts = {
      .engine = "engine 7 {24=21}", .workspace_bytes = 4096, .candidates = 5, .microseconds = 12.5};
  return plan;
}

// The only file of a folder.
std::string OnlyFile(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path().string());
  }
  EXPECT_EQ(files.size(), 1u);
  return files.empty() ? std::string() : files[0];
}

TEST(PlanCache, KeepsAtOnceWhatWasPut) {
  const trainyard::testing::TempDir folder;
  PlanCache writer(folder.File("plans"));
  ASSERT_TRUE(writer.Put("a | b", PlanOf("{\"engine\": \"\\u00e4\"}")).ok());
  // The writer goes on, and may be killed at any time.
  PlanCache cache(folder.File("plans"));
  const std::optional<CachedPlan> found = cache.Find("a | b");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->json, "{\"engine\": \"\\u00e4\"}");
  EXPECT_EQ(found->facts.engine, "engine 7 {24=21}");
  EXPECT_EQ(found->facts.workspace_bytes, 4096);
  EXPECT_EQ(found->facts.candidates, 5);
  EXPECT_EQ(found->facts.microseconds, 12.5);
  EXPECT_TRUE(found->facts.from_cache);
  EXPECT_FALSE(cache.Find("a").has_value());
}

TEST(PlanCache, ProcessesShareAFolder) {
  const trainyard::testing::TempDir folder;
  PlanCache first(folder.path());
  PlanCache second(folder.path());
  ASSERT_TRUE(first.Put("first", PlanOf("1")).ok());
  ASSERT_TRUE(first.Put("both", PlanOf("1")).ok());
  ASSERT_TRUE(second.Put("both", PlanOf("2")).ok());
  EXPECT_TRUE(second.Find("first").has_value());
  EXPECT_EQ(PlanCache(folder.path()).Find("both")->json, "2");
}

TEST(PlanCache, TakesAFileThatIsNoneOfItsForAbsent) {
  for (const std::string text :
       {"", "{", "[]", "null", "1", R"({"version": 2})", R"({"version": 1, "entries": {}})",
        R"({"version": 2, "key": "b", "plan": "", "engine": "", "workspace_bytes": 0,
            "candidates": 1, "microseconds": 1})",
        R"({"version": 2, "key": "a", "plan": 1, "engine": "", "workspace_bytes": 0,
            "candidates": 1, "microseconds": 1})",
        R"({"version": 2, "key": "a", "plan": "", "engine": "", "workspace_bytes": 0,
            "candidates": 1e99, "microseconds": 1})"}) {
    const trainyard::testing::TempDir folder;
    ASSERT_TRUE(PlanCache(folder.path()).Put("a", PlanOf("1")).ok());
    ASSERT_TRUE(ReplaceFile(OnlyFile(folder.path()), text).ok());
    PlanCache cache(folder.path());
    EXPECT_FALSE(cache.Find("a").has_value()) << text;
    ASSERT_TRUE(cache.Put("a", PlanOf("3")).ok()) << text;
    EXPECT_EQ(PlanCache(folder.path()).Find("a")->json, "3") << text;
  }
}

TEST(PlanCache, WithoutAFolderRemembersForItself) {
  PlanCache cache("");
  EXPECT_TRUE(cache.Put("a", PlanOf("1")).ok());
  EXPECT_TRUE(cache.Find("a").has_value());
}

TEST(PlanCache, SaysWhyItCannotBeWrittenAndRemembers) {
  const trainyard::testing::TempDir folder;
  PlanCache cache(folder.Write("file", "") + "/plans");
  EXPECT_FALSE(cache.Put("a", PlanOf("1")).ok());
  EXPECT_TRUE(cache.Find("a").has_value());
}

}  // namespace
}  // namespace trainyard::engine::cuda::dnn
