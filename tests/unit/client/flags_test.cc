// Tests the facade over CLI11: what a verb may rely on, whatever library implements it.
#include "client/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FlagsTest : public ::testing::Test {
 protected:
  FlagsTest() {
    line_.Globals().Value("--server", server_, "Where the server is");
    Flags ls = line_.AddVerb("ls", "List things", "--all");
    ls.Switch("-a,--all", all_, "All of them");
    ls.Value("--limit", limit_, "At most so many").Range(1, 10);
    ls.Repeated("--state", states_, "Only these");
    ls.Words("FILE", files_, "Files");
    line_.AddGroup("things", "Work on things");
    line_.AddVerb("things get", "Get one", "").Word("THING", thing_, "Its name").Required();
  }

  CommandLine line_{"yard", "Does things.", "Start here"};
  std::string server_;
  bool all_ = false;
  int limit_ = 3;
  std::vector<std::string> states_;
  std::vector<std::string> files_;
  std::string thing_;
};

TEST_F(FlagsTest, GlobalFlagsMayStandBeforeTheVerb) {
  EXPECT_EQ(line_.Parse({"--server", "unix:/x", "ls", "-a"}).verb, "ls");
  EXPECT_EQ(server_, "unix:/x");
  EXPECT_TRUE(all_);
}

TEST_F(FlagsTest, GlobalFlagsMayStandBehindTheVerb) {
  EXPECT_EQ(line_.Parse({"ls", "--all", "--server", "unix:/x"}).verb, "ls");
  EXPECT_EQ(server_, "unix:/x");
  EXPECT_TRUE(all_);
}

TEST_F(FlagsTest, WhatIsNotGivenKeepsItsValue) {
  EXPECT_EQ(line_.Parse({"ls"}).verb, "ls");
  EXPECT_EQ(limit_, 3);
  EXPECT_FALSE(all_);
}

TEST_F(FlagsTest, ARepeatedFlagTakesOneValueAndLeavesWhatFollowsAlone) {
  EXPECT_EQ(line_.Parse({"ls", "--state", "a=1", "job.yaml", "--state", "b=[1, 2]"}).verb, "ls");
  EXPECT_THAT(states_, ElementsAre("a=1", "b=[1, 2]"));
  EXPECT_THAT(files_, ElementsAre("job.yaml"));
}

TEST_F(FlagsTest, VerbsOfGroupsAreNamedWithTheirGroup) {
  EXPECT_EQ(line_.Parse({"things", "get", "x"}).verb, "things get");
  EXPECT_EQ(thing_, "x");
}

TEST_F(FlagsTest, MistakesOfUseEndWithTwoAndSayWhereToLook) {
  for (const auto& args : std::vector<std::vector<std::string>>{
           {}, {"things"}, {"things", "get"}, {"ls", "--bogus"}, {"ls", "--limit", "11"}}) {
    const CommandLine::Outcome outcome = line_.Parse(args);
    EXPECT_THAT(outcome.verb, IsEmpty());
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, HasSubstr("try: yard --help"));
  }
}

TEST_F(FlagsTest, AVerbThatIsNotThereIsToldWithTheNearest) {
  EXPECT_THAT(line_.Parse({"lss"}).err, HasSubstr("did you mean 'ls'?"));
}

TEST_F(FlagsTest, HelpGoesToStdoutAndEndsWithZero) {
  const CommandLine::Outcome outcome = line_.Parse({"things", "get", "--help"});
  EXPECT_THAT(outcome.verb, IsEmpty());
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("Example:\n  yard things get"));
}

TEST_F(FlagsTest, VerbsAreDescribedWithTheGlobalFlags) {
  const std::vector<VerbInfo> verbs = line_.Describe();
  ASSERT_EQ(verbs.size(), 2u);
  EXPECT_EQ(verbs[0].name, "ls");
  EXPECT_THAT(verbs[0].flags, ElementsAre("--all", "--help", "--limit", "--server", "--state"));
  EXPECT_EQ(verbs[1].name, "things get");
  EXPECT_EQ(verbs[1].summary, "Get one");
}

}  // namespace
}  // namespace trainyard::client
