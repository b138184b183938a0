#include "worker/run_dir/assignment.h"

#include "common/base/errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/run_dir/test_support.h"

namespace trainyard::run_dir {
namespace {

using ::testing::HasSubstr;

std::string MinimalWith(const std::string& ranks, const std::string& more = "") {
  return R"({"format": 1, "world_size": 2, "ranks": )" + ranks + R"(, "spec": {})" + more + "}";
}

std::string ErrorOf(const std::string& text) {
  const auto assignment = DecodeAssignment(text, "some/assignment.json");
  EXPECT_FALSE(assignment.ok()) << text;
  return std::string(assignment.status().message());
}

TEST(Assignment, SurvivesWriteAndRead) {
  const testing::TempDir folder;
  const RunDir dir(folder.path());
  Assignment assignment;
  assignment.job = 7;
  assignment.ranks = {{.rank = 0, .cpus = {1, 3}, .threads = 2, .memory_bytes = int64_t{80} << 30}};
  assignment.ranks[0].host_memory_bytes = int64_t{4} << 30;
  assignment.isolation = {IsolationLevel::kSandbox, "bubblewrap", "/usr/bin/bwrap", "/sys/x"};
  assignment.spec_json = R"({"name":"a \"b\""})";
  assignment.failures = 2;
  assignment.run_time = absl::Seconds(90);
  ASSERT_TRUE(WriteAssignment(dir, assignment).ok());
  const auto read = ReadAssignment(dir);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, assignment);
  ASSERT_NE(read->FindRank(0), nullptr);
  EXPECT_EQ(read->FindRank(1), nullptr);
}

TEST(Assignment, MissingFileIsNotFoundWithItsPath) {
  const auto read = ReadAssignment(RunDir("/does/not/exist"));
  EXPECT_TRUE(absl::IsNotFound(read.status()));
  EXPECT_THAT(std::string(read.status().message()), HasSubstr("/does/not/exist/assignment.json"));
}

TEST(Assignment, UnknownKeysAreIgnored) {
  EXPECT_TRUE(
      DecodeAssignment(MinimalWith(R"([{"rank": 0, "x": 1}])", R"(, "later": [])"), "f").ok());
}

TEST(Assignment, ErrorsNameFileFieldAndValue) {
  EXPECT_THAT(ErrorOf("{"), HasSubstr("some/assignment.json"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("holds array; expected an object"));
  EXPECT_THAT(ErrorOf(MinimalWith("[]")), HasSubstr("'ranks' is empty"));
  EXPECT_THAT(ErrorOf(MinimalWith("[{}]")), HasSubstr("'ranks[0].rank' is missing"));
  EXPECT_THAT(ErrorOf(MinimalWith(R"([{"rank": 2}])")),
              HasSubstr("'ranks[0].rank' is 2; expected an integer from 0 to 1"));
  EXPECT_THAT(ErrorOf(MinimalWith(R"([{"rank": 0}, {"rank": 0}])")), HasSubstr("is 0 twice"));
  EXPECT_THAT(ErrorOf(MinimalWith(R"([{"rank": 0, "cpus": [0, "x"]}])")),
              HasSubstr("'ranks[0].cpus[1]' is \"x\""));
  EXPECT_THAT(ErrorOf(MinimalWith(R"([{"rank": 0, "threads": 0}])")), HasSubstr("threads"));
  EXPECT_THAT(ErrorOf(MinimalWith(R"([{"rank": 0, "memory_bytes": -1}])")),
              HasSubstr("memory_bytes"));
  EXPECT_THAT(ErrorOf(R"({"format": 1, "format": 1})"), HasSubstr("has the key \"format\" twice"));
  EXPECT_THAT(ErrorOf(R"({"format": 1, "world_size": 1.5, "ranks": [], "spec": {}})"),
              HasSubstr("'world_size' is 1.5; expected an integer"));
}

TEST(Assignment, IsolationHasALevelThatIsKnown) {
  const std::string ranks = R"([{"rank": 0}])";
  EXPECT_THAT(ErrorOf(MinimalWith(ranks, R"(, "isolation": {})")),
              HasSubstr("'isolation.level' is missing"));
  EXPECT_THAT(ErrorOf(MinimalWith(ranks, R"(, "isolation": {"level": "jail"})")),
              HasSubstr("'isolation.level' is 'jail'; expected process, cgroup, sandbox"));
}

TEST(Assignment, DeepNestingIsRefused) {
  const std::string deep(200, '[');
  EXPECT_THAT(ErrorOf(MinimalWith(deep + std::string(200, ']'))), HasSubstr("nested deeper"));
}

TEST(Assignment, AnotherFormatIsUnimplemented) {
  const auto read = DecodeAssignment(R"({"format": 2})", "f");
  EXPECT_TRUE(absl::IsUnimplemented(read.status())) << read.status();
}

TEST(Assignment, SpecMustBeAnObjectToBeWritten) {
  Assignment assignment;
  assignment.spec_json = "[1]";
  EXPECT_TRUE(absl::IsInvalidArgument(EncodeAssignment(assignment).status()));
}

}  // namespace
}  // namespace trainyard::run_dir
