#include "client/parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "tests/unit/client/command_runner.h"

namespace trainyard::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Parser, GlobalOptionsMayStandBeforeAndBehindTheVerb) {
  for (const auto& args : {std::vector<std::string>{"--server", "unix:/x", "ls", "-a"},
                           std::vector<std::string>{"ls", "-a", "--server", "unix:/x"}}) {
    const Parsed parsed = ParseCommandLine(args);
    ASSERT_TRUE(parsed.options.has_value()) << parsed.err;
    EXPECT_EQ(parsed.options->verb, "ls");
    EXPECT_EQ(parsed.options->server, "unix:/x");
    EXPECT_TRUE(parsed.options->all);
  }
}

TEST(Parser, SetMayBeRepeatedAndLeavesWhatFollowsAlone) {
  const Parsed parsed =
      ParseCommandLine({"submit", "--set", "a=1", "job.yaml", "--set", "b=[1, 2]"});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.err;
  EXPECT_THAT(parsed.options->set, ElementsAre("a=1", "b=[1, 2]"));
  EXPECT_THAT(parsed.options->files, ElementsAre("job.yaml"));
}

TEST(Parser, FilesMayStandWithAndWithoutTheirFlag) {
  const Parsed parsed = ParseCommandLine({"submit", "a.yaml", "-f", "b.yaml", "-f", "c.yaml"});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.err;
  EXPECT_THAT(parsed.options->files, ::testing::UnorderedElementsAre("a.yaml", "b.yaml", "c.yaml"));
}

TEST(Parser, RunIsSubmitAndFollow) {
  const Parsed parsed = ParseCommandLine({"run", "job.yaml", "--devices", "4"});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.err;
  EXPECT_EQ(parsed.options->verb, "submit");
  EXPECT_TRUE(parsed.options->follow);
  EXPECT_EQ(parsed.options->devices, 4);
}

TEST(Parser, MistakesOfUseEndWithTwoAndSayWhatIsMeant) {
  EXPECT_THAT(ParseCommandLine({"submitt"}).err, HasSubstr("did you mean 'submit'?"));
  for (const auto& args : std::vector<std::vector<std::string>>{{},
                                                                {"show"},
                                                                {"ls", "--bogus"},
                                                                {"ls", "-o", "xml"},
                                                                {"diff", "1"},
                                                                {"submit", "a", "--devices", "0"},
                                                                {"checkpoints"},
                                                                {"completion", "tcsh"}}) {
    const Parsed parsed = ParseCommandLine(args);
    EXPECT_FALSE(parsed.options.has_value());
    EXPECT_EQ(parsed.exit_code, 2);
    EXPECT_THAT(parsed.err, HasSubstr("try: trainyard --help"));
  }
}

TEST(Parser, EveryVerbHasHelpWithAnExample) {
  const auto verbs = DescribeVerbs();
  EXPECT_GE(verbs.size(), 34u);
  for (const commands::VerbInfo& verb : verbs) {
    std::vector<std::string> args = absl::StrSplit(verb.name, ' ');
    args.push_back("--help");
    const Parsed parsed = ParseCommandLine(args);
    EXPECT_EQ(parsed.exit_code, 0) << verb.name;
    EXPECT_THAT(parsed.out, HasSubstr("Example:\n  trainyard " + verb.name)) << verb.name;
    EXPECT_FALSE(verb.summary.empty()) << verb.name;
  }
}

TEST(Completion, EveryShellGetsAllVerbsAndFlags) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    trainyard::testing::CommandRunner runner("");
    const auto result = runner.Run({"completion", shell});
    EXPECT_EQ(result.exit_code, 0);
    for (const commands::VerbInfo& verb : DescribeVerbs()) {
      for (const std::string& word : std::vector<std::string>(absl::StrSplit(verb.name, ' '))) {
        EXPECT_THAT(result.out, HasSubstr(word)) << shell;
      }
      for (const std::string& flag : verb.flags) {
        EXPECT_THAT(result.out, HasSubstr(flag.substr(2))) << shell;
      }
    }
  }
}

TEST(Version, IsPrinted) {
  trainyard::testing::CommandRunner runner("");
  EXPECT_THAT(runner.Run({"version"}).out, ::testing::StartsWith("trainyard 0."));
}

}  // namespace
}  // namespace trainyard::client
