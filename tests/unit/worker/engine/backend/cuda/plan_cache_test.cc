// Tests the file in which cuDNN's plans are kept, which may contain anything. cuDNN itself takes no
// part.
#include "worker/engine/backend/cuda/dnn/plan_cache.h"

#include <gtest/gtest.h>

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

TEST(PlanCache, KeepsWhatWasPutForTheNextProcess) {
  const testing::TempDir folder;
  {
    PlanCache cache(folder.File("plans.json"));
    cache.Put("a | b", PlanOf("{\"engine\": \"\\u00e4\"}"));
    ASSERT_TRUE(cache.Save().ok());
  }
  const PlanCache cache(folder.File("plans.json"));
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

TEST(PlanCache, KeepsWhatAnotherProcessWroteInTheMeantime) {
  const testing::TempDir folder;
  PlanCache first(folder.File("plans.json"));
  PlanCache second(folder.File("plans.json"));
  first.Put("first", PlanOf("1"));
  first.Put("both", PlanOf("1"));
  second.Put("second", PlanOf("2"));
  second.Put("both", PlanOf("2"));
  ASSERT_TRUE(first.Save().ok());
  ASSERT_TRUE(second.Save().ok());
  const PlanCache cache(folder.File("plans.json"));
  ASSERT_TRUE(cache.Find("first").has_value());
  ASSERT_TRUE(cache.Find("second").has_value());
  ASSERT_TRUE(cache.Find("both").has_value());
  EXPECT_EQ(cache.Find("both")->json, "2");
  EXPECT_TRUE(second.Find("first").has_value());
}

TEST(PlanCache, TakesAFileThatIsNoneOfItsForEmpty) {
  const testing::TempDir folder;
  for (const char* text :
       {"", "{", "[]", "null", "{\"version\": 0, \"entries\": {}}", "{\"version\": 1}",
        "{\"version\": 1, \"entries\": []}", "{\"version\": 1, \"entries\": {\"a\": 1}}",
        "{\"version\": 1, \"entries\": {\"a\": {\"plan\": 1, \"engine\": \"\", "
        "\"workspace_bytes\": 0, \"candidates\": 1, \"microseconds\": 1}}}",
        "{\"version\": 1, \"entries\": {\"a\": {\"plan\": \"\", \"engine\": \"\", "
        "\"workspace_bytes\": 0, \"candidates\": 1e99, \"microseconds\": 1}}}"}) {
    const std::string path = folder.Write("plans.json", text);
    PlanCache cache(path);
    EXPECT_FALSE(cache.Find("a").has_value()) << text;
    cache.Put("b", PlanOf("3"));
    ASSERT_TRUE(cache.Save().ok()) << text;
    EXPECT_TRUE(PlanCache(path).Find("b").has_value()) << text;
  }
}

TEST(PlanCache, WritesNothingWhereNothingIsNew) {
  const testing::TempDir folder;
  PlanCache cache(folder.File("plans.json"));
  EXPECT_TRUE(cache.Save().ok());
  EXPECT_FALSE(FileExists(folder.File("plans.json")));
}

TEST(PlanCache, WithoutAPathRemembersForItself) {
  PlanCache cache("");
  cache.Put("a", PlanOf("1"));
  EXPECT_TRUE(cache.Save().ok());
  EXPECT_TRUE(cache.Find("a").has_value());
}

TEST(PlanCache, SaysWhyItCannotBeWritten) {
  const testing::TempDir folder;
  PlanCache cache(folder.File("no folder/plans.json"));
  cache.Put("a", PlanOf("1"));
  EXPECT_FALSE(cache.Save().ok());
}

}  // namespace
}  // namespace trainyard::engine::cuda::dnn
