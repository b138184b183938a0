// Tests which files of a program are kept, and what is said of those that are not.
#include "worker/run_dir/outputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::run_dir {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(OutputPatterns, NameFilesAndFolders) {
  EXPECT_TRUE(MatchesPattern("a.csv", "a.csv"));
  EXPECT_TRUE(MatchesPattern("./a.csv", "a.csv"));
  EXPECT_TRUE(MatchesPattern("*.csv", "a.csv"));
  EXPECT_FALSE(MatchesPattern("*.csv", "b/a.csv")) << "a star stays within a name";
  EXPECT_TRUE(MatchesPattern("results/**", "results/a/b.csv"));
  EXPECT_TRUE(MatchesPattern("results", "results/a/b.csv")) << "a folder is kept with all in it";
  EXPECT_TRUE(MatchesPattern("results/", "results/a.csv"));
  EXPECT_FALSE(MatchesPattern("results/**", "result/a.csv"));
  EXPECT_TRUE(MatchesPattern("**/*.png", "a.png"));
  EXPECT_TRUE(MatchesPattern("**/*.png", "a/b/c.png"));
  EXPECT_FALSE(MatchesPattern("**/*.png", "a/b/c.jpg"));
  EXPECT_TRUE(MatchesPattern("run-?/log*", "run-1/log.txt"));
  EXPECT_FALSE(MatchesPattern("run-?/log*", "run-12/log.txt"));
  EXPECT_FALSE(MatchesPattern("*", "results/a.csv")) << "a wildcard names no folder";
  EXPECT_FALSE(MatchesPattern("*", ".bashrc"));
  EXPECT_FALSE(MatchesPattern("**", ".git/config"));
  EXPECT_FALSE(MatchesPattern("", "a"));
}

TEST(OutputPatterns, ReachOnlyTheirFolders) {
  EXPECT_TRUE(MayMatchBelow("results/**", "results"));
  EXPECT_TRUE(MayMatchBelow("a/*/c.csv", "a/b"));
  EXPECT_FALSE(MayMatchBelow("a/*/c.csv", "b"));
  EXPECT_FALSE(MayMatchBelow("*.csv", "data"));
  EXPECT_TRUE(MayMatchBelow("**/*.csv", "data/deep"));
}

TEST(OutputPatterns, AHostilePatternTakesNoTime) {
  const std::string pattern =
      "*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b/**/**/**/**/**/**/**/**/x";
  EXPECT_FALSE(MatchesPattern(pattern, std::string(250, 'a') + "/b/b/b/b/b/b/b/b/b/b/b/b"));
}

class FindOutputsTest : public ::testing::Test {
 protected:
  void Put(const std::string& path, const std::string& content = "x") {
    const std::string full = dir_.File("work/" + path);
    TY_CHECK_OK(MakeDirectories(full.substr(0, full.rfind('/'))));
    TY_CHECK_OK(ReplaceFile(full, content));
  }
  FoundOutputs Find(std::vector<std::string> patterns, const OutputLimits& limits = {}) {
    return FindOutputs({dir_.File("work"), std::move(patterns)}, limits);
  }
  static std::vector<std::string> Names(const FoundOutputs& found) {
    std::vector<std::string> names;
    for (const OutputFile& file : found.files) names.push_back(file.name);
    return names;
  }

  testing::TempDir dir_;
};

TEST_F(FindOutputsTest, FilesAreFoundByName) {
  Put("results/b.csv", "12345");
  Put("results/deep/a.png");
  Put("model.pt");
  Put("data/huge.bin");
  const FoundOutputs found = Find({"results/**", "*.pt"});
  EXPECT_THAT(Names(found), ElementsAre("model.pt", "results/b.csv", "results/deep/a.png"));
  EXPECT_EQ(found.files[1].size, 5);
  EXPECT_THAT(found.left_out, IsEmpty());
  EXPECT_THAT(Names(Find({"nothing/**"})), IsEmpty());
}

TEST_F(FindOutputsTest, LinksAndSpecialFilesAndOddNamesAreLeftOutAndTold) {
  Put("out/good.txt");
  ASSERT_EQ(symlink("/etc/passwd", dir_.File("work/out/link").c_str()), 0);
  ASSERT_EQ(symlink("/etc", dir_.File("work/out/folder").c_str()), 0);
  ASSERT_EQ(mkfifo(dir_.File("work/out/pipe").c_str(), 0600), 0);
  Put("out/red\x1b[31m.txt");
  Put("out/\xff.bin");
  Put("out/.hidden");
  const FoundOutputs found = Find({"out", "out/.hidden"});
  EXPECT_THAT(Names(found), ElementsAre("out/good.txt"));
  EXPECT_THAT(found.left_out,
              AllOf(HasSubstr("'out/link' is a symbolic link"),
                    HasSubstr("'out/folder' is a symbolic link"),
                    HasSubstr("'out/pipe' is no file"), HasSubstr("'out/red?[31m.txt' has a name"),
                    HasSubstr("'out/.hidden' has"), Not(HasSubstr("\x1b"))));
}

TEST_F(FindOutputsTest, LimitsKeepTheFirstNames) {
  for (int i = 0; i < 30; ++i) Put(absl::StrCat("out/", 10 + i), "123");
  FoundOutputs found = Find({"out"}, {.files = 2});
  EXPECT_THAT(Names(found), ElementsAre("out/10", "out/11"));
  EXPECT_THAT(found.left_out,
              AllOf(HasSubstr("'out/12' is beyond the limit of 2 files"), HasSubstr("18 more")));
  found = Find({"out"}, {.bytes = 7});
  EXPECT_THAT(Names(found), ElementsAre("out/10", "out/11"));
  EXPECT_THAT(found.left_out, HasSubstr("'out/12' has 3 B, which is beyond the limit of 7 B"));
  found = Find({"out"}, {.looked_at = 5});
  EXPECT_LE(found.files.size(), 5u);
  EXPECT_THAT(found.left_out, HasSubstr("first 5 names"));
}

TEST_F(FindOutputsTest, ThePlanIsReadBack) {
  const RunDir dir(dir_.File("run"));
  TY_CHECK_OK(MakeDirectories(dir.root()));
  EXPECT_TRUE(absl::IsNotFound(ReadOutputsPlan(dir).status()));
  TY_CHECK_OK(WriteOutputsPlan(dir, {"/home/anna/x", {"results/**", "*.csv"}}));
  const auto plan = ReadOutputsPlan(dir);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->folder, "/home/anna/x");
  EXPECT_THAT(plan->patterns, ElementsAre("results/**", "*.csv"));
  for (const char* text : {"", "[]", "{}", R"({"folder": 3, "patterns": []})",
                           R"({"folder": "x", "patterns": []})", R"({"folder": "/x"})"}) {
    TY_CHECK_OK(ReplaceFile(dir.OutputsPath(), text));
    EXPECT_TRUE(absl::IsDataLoss(ReadOutputsPlan(dir).status())) << text;
  }
}

}  // namespace
}  // namespace trainyard::run_dir
