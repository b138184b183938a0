// Tests that processes are told apart by pid and start time.
#include "common/base/processes.h"

#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace trainyard {
namespace {

TEST(ParseProcessStat, ReadsNamesWithBlanksAndParentheses) {
  const auto info = ParseProcessStat(
      "77 (a) S (b) R 5 70 70 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 9001 123 4 5\n");
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(*info, (ProcessInfo{77, 5, 70, 'R', 9001}));
}

TEST(ParseProcessStat, RefusesWhatIsNoStatLine) {
  for (const char* text : {"", "x", "1 (a) S", "a (b) R 5 70 70 0 -1", ") (", "1 (a) S x y z"}) {
    EXPECT_EQ(ParseProcessStat(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(Processes, FindsItselfAmongTheDescendantsOfItsParent) {
  const auto self = ReadProcess(getpid());
  ASSERT_TRUE(self.ok());
  EXPECT_EQ(self->parent, getppid());
  EXPECT_THAT(DescendantsOf(getppid(), ListProcesses()),
              testing::Contains(testing::Field(&ProcessInfo::pid, getpid())));
}

TEST(DescendantsOf, PassesOverTheDeadAndSurvivesCycles) {
  const std::vector<ProcessInfo> processes = {{2, 1, 2, 'S', 1},
                                              {3, 2, 2, 'Z', 1},
                                              {4, 3, 2, 'R', 1},
                                              {5, 6, 5, 'S', 1},
                                              {6, 5, 5, 'S', 1}};
  std::vector<int64_t> pids;
  for (const ProcessInfo& process : DescendantsOf(1, processes)) pids.push_back(process.pid);
  EXPECT_THAT(pids, testing::ElementsAre(2, 4));
  EXPECT_EQ(DescendantsOf(5, processes).size(), 1u);
}

TEST(Processes, ReadsVariablesOfTheEnvironment) {
  EXPECT_EQ(ProcessVariable(getpid(), "TRAINYARD_NO_SUCH_VARIABLE"), "");
  EXPECT_NE(ProcessVariable(getpid(), "PATH"), "");
  EXPECT_NE(BootId(), "");
}

}  // namespace
}  // namespace trainyard
