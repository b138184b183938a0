// Tests the facade over CLI11: what a verb may rely on, whatever library implements it.
#include "client/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace trainyard::client {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
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

// A command line with a verb that takes a command.
class FlagsRestTest : public FlagsTest {
 protected:
  FlagsRestTest() {
    Flags run = line_.AddVerb("run", "Run a command", "-- make all");
    run.Switch("--dry", dry_, "Do nothing");
    run.Rest("COMMAND...", command_, "What to run");
  }

  bool dry_ = false;
  std::vector<std::string> command_;
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

TEST_F(FlagsRestTest, WordsAfterTwoHyphensGoToAVerbThatTakesThemAsTheyAre) {
  EXPECT_EQ(line_.Parse({"run", "--dry", "--", "make", "--my_flag", "--", "--help"}).verb, "run");
  EXPECT_TRUE(dry_);
  EXPECT_THAT(command_, ElementsAre("make", "--my_flag", "--", "--help"));
  EXPECT_EQ(line_.Parse({"ls", "--", "-a"}).verb, "ls");
  EXPECT_THAT(files_, ElementsAre("-a")) << "as in every other program";
}

TEST_F(FlagsRestTest, NothingAfterTwoHyphensIsAMistake) {
  const CommandLine::Outcome outcome = line_.Parse({"run", "--"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("a command is missing after '--'"));
  EXPECT_THAT(line_.Parse({"run", "--help"}).out, HasSubstr("-- COMMAND..."));
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
  const std::map<std::vector<std::string>, std::string> mistakes = {
      {{}, "try: yard --help\n"},
      {{"lss"}, "try: yard --help\n"},
      {{"things"}, "try: yard things --help\n"},
      {{"things", "gte"}, "try: yard things --help\n"},
      {{"things", "get"}, "try: yard things get --help\n"},
      {{"ls", "--bogus"}, "try: yard ls --help\n"},
      {{"ls", "--limit", "11"}, "try: yard ls --help\n"}};
  for (const auto& [args, where] : mistakes) {
    const CommandLine::Outcome outcome = line_.Parse(args);
    EXPECT_THAT(outcome.verb, IsEmpty());
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, EndsWith(where));
  }
}

TEST_F(FlagsTest, AVerbThatIsNotThereIsToldWithTheNearest) {
  EXPECT_THAT(line_.Parse({"lss"}).err, HasSubstr("unknown command 'lss'; did you mean 'ls'?"));
  EXPECT_THAT(line_.Parse({"--server", "unix:/x", "lss"}).err, HasSubstr("unknown command"));
  EXPECT_THAT(line_.Parse({"things", "gte", "x"}).err,
              HasSubstr("unknown command 'gte'; did you mean 'get'?"));
  EXPECT_THAT(line_.Parse({"things", "break"}).err, HasSubstr("'break'; expected get"));
}

TEST_F(FlagsTest, WordsOfOtherToolsLeadToTheVerbsThatAreMeant) {
  line_.AddSynonym("show-all", {"ls", "nosuch"});
  line_.AddSynonym("fetch", {"get"});
  EXPECT_THAT(line_.Parse({"show-all"}).err, HasSubstr("did you mean 'ls'?"));
  EXPECT_THAT(line_.Parse({"things", "fetch"}).err, HasSubstr("did you mean 'get'?"));
}

TEST_F(FlagsTest, TheWordsOfAFlagMayBeJoinedByUnderscores) {
  bool dry_run = false;
  std::string folder;
  Flags flags = line_.AddVerb("run", "Run it", "");
  flags.Switch("--dry-run", dry_run, "Do nothing");
  flags.Value("--state-dir", folder, "A folder");
  EXPECT_EQ(line_.Parse({"run", "--dry_run", "--state_dir=/a_b"}).verb, "run");
  EXPECT_TRUE(dry_run);
  EXPECT_EQ(folder, "/a_b");
}

TEST_F(FlagsTest, AnUnknownFlagIsToldWithTheOneThatIsMeant) {
  EXPECT_THAT(line_.Parse({"ls", "--limt", "3"}).err,
              HasSubstr("unknown option '--limt'; did you mean '--limit'?"));
  EXPECT_THAT(line_.Parse({"ls", "--serv=unix:/x"}).err, HasSubstr("did you mean '--server'?"));
  EXPECT_THAT(line_.Parse({"things", "get", "x", "--bogus", "y"}).err,
              HasSubstr("yard: unknown option '--bogus'\n"));
}

TEST_F(FlagsTest, TheFirstWordTooManyIsNamed) {
  EXPECT_THAT(line_.Parse({"things", "get", "x", "first", "second"}).err,
              HasSubstr("'first' is not expected here"));
}

TEST_F(FlagsTest, HelpIsAlsoAVerb) {
  const CommandLine::Outcome outcome = line_.Parse({"help", "things", "get"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("Example:\n  yard things get"));
  EXPECT_THAT(line_.Parse({"help"}).out, HasSubstr("Does things."));
  EXPECT_EQ(line_.Parse({"help", "lss"}).exit_code, 2);
}

TEST_F(FlagsTest, VersionIsAlsoAFlag) {
  line_.SetVersion("yard 1.2");
  const CommandLine::Outcome outcome = line_.Parse({"--version"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "yard 1.2\n");
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
