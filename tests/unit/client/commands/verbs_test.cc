// Tests the table of all commands: what every command has, and how the flags of some of them become
// requests.
#include "client/commands/verbs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <fstream>
#include <map>

#include "absl/strings/str_split.h"
#include "client/daemons/child.h"
#include "tests/unit/client/command_runner.h"
#include "tests/unit/client/fake_server.h"

namespace trainyard::commands {
namespace {

using testing::CommandResult;
using testing::CommandRunner;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kSpec[] =
    "name: small\nmodel: {mlp: {}}\ndata: {dataset: glyphs}\ntrain: {epochs: 1}\n"
    "optimizer: {sgd: {lr: 0.1}}\n";

TEST(Verbs, GlobalFlagsMayStandBeforeAndBehindTheVerb) {
  for (const auto& args :
       {std::vector<std::string>{"--server", "unix:/x", "-q", "-o", "jsonl", "ls", "-a"},
        std::vector<std::string>{"ls", "-a", "-o", "jsonl", "--server", "unix:/x", "-q"}}) {
    const Parsed parsed = ParseCommandLine(args);
    ASSERT_TRUE(parsed.invocation.has_value()) << parsed.err;
    EXPECT_EQ(parsed.invocation->options.server, "unix:/x");
    EXPECT_EQ(parsed.invocation->options.format, Format::kJsonLines);
    EXPECT_TRUE(parsed.invocation->options.quiet);
  }
}

TEST(Verbs, SetMayBeRepeatedAndLeavesWhatFollowsAlone) {
  testing::FakeServer server;
  CommandRunner runner(server.address());
  const std::string file = runner.home.Write("job.yaml", kSpec);
  const CommandResult result =
      runner.Run({"submit", "--set", "train.replicas=2", file, "--set", "model.mlp.hidden=[3, 4]"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(server.last_create().spec().train().replicas(), 2);
  EXPECT_THAT(server.last_create().spec().model().mlp().hidden(), ElementsAre(3, 4));
}

TEST(Verbs, FilesMayStandWithAndWithoutTheirFlag) {
  testing::FakeServer server;
  CommandRunner runner(server.address());
  std::vector<std::string> files;
  for (const char* name : {"a", "b", "c"}) {
    files.push_back(runner.home.Write(std::string(name) + ".yaml", kSpec));
  }
  const CommandResult result =
      runner.Run({"submit", files[0], "-f", files[1], "-f", files[2], "-f", files[1]});
  EXPECT_EQ(result.out, "jobs/1\njobs/2\njobs/3\n");
}

TEST(Verbs, RunIsSubmitAndFollow) {
  testing::FakeServer server;
  server.MakeNewJobs(v1::JOB_STATE_SUCCEEDED);
  CommandRunner runner(server.address());
  const CommandResult result =
      runner.Run({"run", runner.home.Write("job.yaml", kSpec), "--devices", "4"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(server.last_create().spec().devices().count(), 4);
  EXPECT_THAT(result.err, HasSubstr("jobs/1 succeeded"));
}

TEST(Verbs, AProgramInPlaceOfASpecLeadsToTheWayToRunIt) {
  testing::FakeServer server;
  CommandRunner runner(server.address());
  const std::string tool = runner.home.Write("tool", "#!/bin/sh\n");
  const std::map<std::vector<std::string>, std::string> advice = {
      {{"run", "train.py"}, "run -- python3 train.py"},
      {{"run", "./train.py", "--lr", "3"}, "run -- python3 ./train.py --lr 3"},
      {{"run", "--devices", "2", "my train.py", "--lr", "3"},
       "run --devices 2 -- python3 'my train.py' --lr 3"},
      {{"submit", "python3", "train.py"}, "submit -- python3 train.py"},
      {{"submit", "-f", "run.sh"}, "submit -- bash run.sh"},
      {{"run", tool}, "run -- " + tool},
      {{"run", "nosuch", "3"}, "run -- nosuch 3"},
  };
  for (const auto& [args, meant] : advice) {
    const CommandResult result = runner.Run(args);
    EXPECT_EQ(result.exit_code, 2) << meant;
    EXPECT_THAT(result.err, HasSubstr("to run a program, write `trainyard " + meant + "`"));
    EXPECT_THAT(result.err, ::testing::Not(HasSubstr("did you mean")));
  }
  const std::string file = runner.home.Write("job.yaml", kSpec);
  for (const auto& args :
       std::vector<std::vector<std::string>>{{"submit", file, "--bogus"},
                                             {"run", "--name", "train.py", "--bogus"},
                                             {"ls", "run.py"}}) {
    EXPECT_THAT(runner.Run(args).err, ::testing::Not(HasSubstr("to run a program")));
  }
}

TEST(Verbs, MistakesOfUseEndWithTwoAndSayWhatIsMeant) {
  EXPECT_THAT(ParseCommandLine({"submitt"}).err, HasSubstr("did you mean 'submit'?"));
  for (const auto& args : std::vector<std::vector<std::string>>{{},
                                                                {"show"},
                                                                {"ls", "--bogus"},
                                                                {"ls", "-o", "xml"},
                                                                {"diff", "1"},
                                                                {"submit", "a", "--devices", "-1"},
                                                                {"checkpoints"},
                                                                {"completion", "tcsh"}}) {
    const Parsed parsed = ParseCommandLine(args);
    EXPECT_FALSE(parsed.invocation.has_value());
    EXPECT_EQ(parsed.exit_code, 2);
    EXPECT_THAT(parsed.err, ::testing::ContainsRegex("try: trainyard .*--help"));
  }
}

TEST(Verbs, AProviderOfTwoClustersIsRefused) {
  CommandRunner runner("unix:/nowhere");
  const CommandResult result =
      runner.Run({"providers", "add", "lab", "--slurm", "--kubernetes", "pod.yaml"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("only one of --slurm and --kubernetes can be asked"));
  EXPECT_THAT(runner.Run({"providers", "add", "lab"}).err, HasSubstr("say which cluster"));
}

TEST(Verbs, FlagsMayBeWrittenWithHyphensAndWithUnderscores) {
  for (const client::VerbInfo& verb : DescribeVerbs()) {
    for (const std::string& flag : verb.flags) {
      EXPECT_EQ(flag.find('_'), std::string::npos) << verb.name << " " << flag;
    }
  }
  EXPECT_TRUE(ParseCommandLine({"up", "--state_dir", "/x", "--cpu-devices", "2"}).invocation);
  EXPECT_TRUE(ParseCommandLine({"submit", "a.yaml", "--dry_run"}).invocation);
  EXPECT_THAT(ParseCommandLine({"submit", "a.yaml", "--dryrun"}).err,
              HasSubstr("unknown option '--dryrun'; did you mean '--dry-run'?\n"
                        "try: trainyard submit --help"));
}

TEST(Verbs, WordsOfOtherToolsLeadToTheVerbsThatAreMeant) {
  for (const auto& [word, verb] : std::map<std::string, std::string>{{"list", "ls"},
                                                                     {"delete", "rm"},
                                                                     {"sbatch", "submit"},
                                                                     {"stop", "cancel' or 'down"},
                                                                     {"tune", "sweep"}}) {
    EXPECT_THAT(ParseCommandLine({word}).err, HasSubstr("did you mean '" + verb + "'?"));
  }
}

TEST(Verbs, EveryVerbHasHelpWithAnExample) {
  const auto verbs = DescribeVerbs();
  EXPECT_GE(verbs.size(), 43u);
  for (const client::VerbInfo& verb : verbs) {
    std::vector<std::string> args = absl::StrSplit(verb.name, ' ');
    args.push_back("--help");
    const Parsed parsed = ParseCommandLine(args);
    EXPECT_EQ(parsed.exit_code, 0) << verb.name;
    EXPECT_THAT(parsed.out, HasSubstr("Example:\n  trainyard " + verb.name)) << verb.name;
    EXPECT_FALSE(verb.summary.empty()) << verb.name;
  }
}

TEST(Verbs, OutputThatCannotBeWrittenIsAFailure) {
  testing::FakeServer server;
  server.AddJob("a", v1::JOB_STATE_QUEUED);
  CommandRunner runner(server.address());
  std::ofstream full("/dev/full");
  std::ostringstream err;
  std::istringstream in;
  const Parsed parsed = ParseCommandLine({"ls"});
  const Context context = {parsed.invocation->options,
                           runner.surroundings,
                           runner.terminal,
                           full,
                           err,
                           in,
                           false,
                           *Clock::Real(),
                           *Rng::Real(),
                           runner.interrupt,
                           full};
  EXPECT_EQ(commands::Run(context, parsed.invocation->run), link::kFailed);
  EXPECT_THAT(err.str(), HasSubstr("the output cannot be written: No space left on device"));
}

TEST(Completion, EveryShellGetsAllVerbsAndFlags) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    CommandRunner runner("");
    const auto result = runner.Run({"completion", shell});
    EXPECT_EQ(result.exit_code, 0);
    for (const client::VerbInfo& verb : DescribeVerbs()) {
      for (const std::string& word : std::vector<std::string>(absl::StrSplit(verb.name, ' '))) {
        EXPECT_THAT(result.out, HasSubstr(word)) << shell;
      }
      for (const std::string& flag : verb.flags) {
        EXPECT_THAT(result.out, HasSubstr(flag.substr(2))) << shell;
      }
    }
  }
}

TEST(Completion, BashCompletesTheNamesOfContexts) {
  CommandRunner runner("");
  const std::string script = runner.home.Write(
      "script", runner.Run({"completion", "bash"}).out +
                    "trainyard() { [ \"$*\" = 'contexts ls -o name' ] && echo lab home; }\n"
                    "for line in 'contexts use' 'ls --context' 'contexts'; do\n"
                    "  COMP_WORDS=(trainyard $line ''); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                    "  COMPREPLY=(); _trainyard; echo \"${COMPREPLY[*]}\"\n"
                    "done\n");
  const auto result = daemons::RunChild({"/bin/bash", script}, "", absl::Seconds(30));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->out, "lab home\nlab home\nls show add use rm\n") << result->err;
}

// A shell completes with the script, against a program that takes the place of trainyard.
TEST(Completion, JobsWorkersAndSpecsAreCompleted) {
  CommandRunner runner("");
  const std::string script =
      runner.home.Write("completion.sh", runner.Run({"completion", "bash"}).out);
  runner.home.Write("job.yaml", "");
  runner.home.Write("notes.txt", "");
  const std::string program = runner.home.Write(
      "trainyard",
      "#!/bin/sh\ncase $* in workers*) echo workers/lab-1;; sweep*) echo sweeps/3;; "
      "specs*) echo resnet@2;; "
      "*columns*) printf "
      "'NAME\\nconvnet\\n';; *) printf 'jobs/12\\njobs/15\\n';; esac\n");
  ASSERT_EQ(chmod(program.c_str(), 0755), 0);
  const auto complete = [&](const std::string& words) {
    const auto result = daemons::RunChild(
        {"/bin/bash", "-c",
         "cd " + runner.home.path() + "; PATH=$PWD:$PATH; source " + script + "; COMP_WORDS=(" +
             words + "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _trainyard; echo ${COMPREPLY[@]}"},
        "", absl::Minutes(1));
    return result.ok() ? result->out + result->err : std::string(result.status().message());
  };
  EXPECT_EQ(complete("trainyard show ''"), "12 15 convnet\n");
  EXPECT_EQ(complete("trainyard logs 1"), "12 15\n");
  EXPECT_EQ(complete("trainyard cancel 12 con"), "convnet\n");
  EXPECT_EQ(complete("trainyard workers cordon ''"), "lab-1\n");
  EXPECT_EQ(complete("trainyard sweep show ''"), "3\n");
  EXPECT_EQ(complete("trainyard sweep run ''"), "job.yaml resnet\n");
  EXPECT_EQ(complete("trainyard submit ''"), "job.yaml resnet\n");
  EXPECT_EQ(complete("trainyard run res"), "resnet\n");
  EXPECT_EQ(complete("trainyard specs show ''"), "resnet\n");
  EXPECT_EQ(complete("trainyard explain ''"), "job.yaml resnet 12 15 convnet\n");
  EXPECT_EQ(complete("trainyard ls --state s"), "starting stopping suspended succeeded\n");
  EXPECT_EQ(complete("trainyard ls --state = q"), "queued\n");
  EXPECT_EQ(complete("trainyard ls -o j"), "json jsonl\n");
  EXPECT_EQ(complete("trainyard -o ''"), "csv json jsonl name table wide yaml\n");
  EXPECT_EQ(complete("trainyard tokens create --scope ''"), "read submit full\n");
  EXPECT_EQ(complete("trainyard --server tls : //lab : 7443 -q show 1"), "12 15\n");
  EXPECT_EQ(complete("trainyard --server = unix : /x -o json che"), "checkpoints\n");
  EXPECT_EQ(complete("trainyard submit --dry"), "--dry-run\n");
  EXPECT_EQ(complete("trainyard che"), "checkpoints\n");
}

TEST(Version, IsPrinted) {
  CommandRunner runner("");
  EXPECT_THAT(runner.Run({"version"}).out, ::testing::StartsWith("trainyard 0."));
  EXPECT_EQ(runner.Run({"--version"}).out, runner.Run({"version"}).out);
}

}  // namespace
}  // namespace trainyard::commands
