// Reads the arguments of sbatch, and runs the script with a pretended worker in place of a node.
#include "server/provision/slurm/script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "common/base/errors.h"
#include "common/base/files.h"
#include "tests/testing/process.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

namespace trainyard::provision::slurm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

ProviderSpec Spec() {
  ProviderSpec spec;
  spec.name = "lab";
  spec.owner = "ada";
  spec.node = {4, "h200", 16, int64_t{100} << 30};
  spec.time_limit_us = 90 * kSecondUs;
  return spec;
}

TEST(SbatchWordsTest, OursComeLast) {
  SlurmOptions options = {"/shared/ty", {"trainyard-worker"}, {"-p", "gpu", "--time=1"}};
  EXPECT_THAT(SbatchWords("s1", Spec(), options, "ty-s1-lab-7"),
              ElementsAre("sbatch", "--job-name=ty-s1-lab-7", "-p", "gpu", "--time=1", "--parsable",
                          "--job-name=ty-s1-lab-7", "--comment=trainyard:s1:ty-s1-lab-7",
                          "--time=2", "--nodes=1", "--ntasks-per-node=1", "--cpus-per-task=16",
                          "--mem=102400M", "--gpus-per-node=4", "--signal=B:USR1@22",
                          "--no-requeue", "--chdir=/", "--output=/shared/ty/ty-s1-lab-7.log"));
  ProviderSpec spec = Spec();
  spec.node = {1, "cpu", 2, 0};
  spec.time_limit_us = 8 * kHourUs;
  spec.nodes = 3;
  EXPECT_THAT(SbatchWords("s1", spec, {"/t", {"w"}, {}}, "p"),
              ElementsAre("sbatch", "--job-name=p", "--parsable", "--job-name=p",
                          "--comment=trainyard:s1:p", "--time=480", "--nodes=3",
                          "--ntasks-per-node=1", "--cpus-per-task=2", "--signal=B:USR1@300",
                          "--no-requeue", "--chdir=/", "--output=/t/p.log"));
}

TEST(SbatchWordsTest, ATrialIsOneWhateverTheArgumentsAre) {
  const std::vector<std::string> words =
      SbatchWords("s1", Spec(), {"/t", {"w"}, {"-p", "gpu"}}, "p", /*is_trial=*/true);
  EXPECT_EQ(words[1], "--test-only");
  EXPECT_EQ(words[2], "--job-name=p");
}

TEST(SlurmOptionsTest, ArgumentsThatMakeOtherThanOneJobAreRefused) {
  EXPECT_TRUE(CheckSlurmOptions({"/t",
                                 {"w"},
                                 {"-p", "gpu", "--qos=high", "--account", "lab", "--exclusive",
                                  "--wait-all-nodes=1"}})
                  .ok());
  EXPECT_EQ(GetFieldViolations(CheckSlurmOptions({"t", {}, {}})).size(), 2u);
  for (const char* argument :
       {"-Mother", "-M", "--clusters=other", "--array=1-3", "-a1-3", ":", "--hold", "-H", "--wait",
        "-W", "--wrap=true", "--test-only", "--cluster=o",
        // Names may be cut short, and letters joined.
        "--arra=1-3", "--hol", "--requ", "--clu=o", "-sHMother",
        // sbatch would take these as the script, and what follows with them.
        "train.sh", "--", "-", "", "-A", "--partition"}) {
    EXPECT_EQ(GetFieldViolations(CheckSlurmOptions({"/t", {"w"}, {argument}})).size(), 1u)
        << argument;
  }
}

TEST(SlurmOptionsTest, NoWordIsTakenForTheScript) {
  const auto count = [](std::vector<std::string> arguments) {
    return GetFieldViolations(CheckSlurmOptions({"/t", {"w"}, std::move(arguments)})).size();
  };
  EXPECT_EQ(count({"-p", "gpu", "train.sh"}), 1u);
  EXPECT_EQ(count({"--exclusive", "train.sh"}), 1u);
  EXPECT_EQ(count({"-pgpu", "train.sh"}), 1u);
  EXPECT_EQ(count({"-p", "--hold"}), 0u) << "it is the name of a partition";
  EXPECT_EQ(count({"--gres", "gpu:2", "-w", "node[1-4]", "--mem-per-cpu=2G"}), 0u);
}

TEST(PilotScriptTest, SeveralNodesAreStartedBySrun) {
  ProviderSpec spec = Spec();
  spec.nodes = 2;
  const std::string script = PilotScript(spec, {"/t", {"w"}, {}}, "p");
  EXPECT_THAT(script, HasSubstr("srun --ntasks-per-node=1 --cpus-per-task=16 "));
  EXPECT_THAT(script, HasSubstr("name=p-n$SLURM_NODEID"));
  EXPECT_THAT(PilotScript(Spec(), {"/t", {"w"}, {}}, "p"), Not(HasSubstr("srun")));
}

TEST(PilotScriptTest, TheWarningDrainsTheWorkerOnceAndItsStateIsRemoved) {
  testing::TempDir dir;
  // A folder and words that a shell would take apart.
  const std::string folder = dir.File("it's a $HOME");
  ASSERT_TRUE(MakeDirectories(folder, 0700).ok());
  ASSERT_TRUE(WriteFileAtomically(JoinPath(folder, "p.token"), "secret", 0600).ok());
  // It shows what it was given, takes a moment to drain, and counts how often it was told.
  const std::string worker =
      dir.Write("worker.sh",
                "told=0\ntrap 'told=$((told+1))' TERM\nprintf '%s\\n' \"$@\" > \"$OUT/args\"\n"
                "while [ \"$1\" != --state_dir ]; do shift; done\n"
                "touch \"$2/file\"; echo \"$2\" > \"$OUT/state\"\n"
                "while [ $told = 0 ]; do sleep 0.05; done\n"
                "sleep 2.5; echo $told > \"$OUT/told\"; exit 5\n");
  const SlurmOptions options = {folder, {"/bin/bash", worker, "--server", "a b'c"}, {}};
  auto process = testing::Process::Start(
      {{"/bin/bash", dir.Write("script", PilotScript(Spec(), options, "p"))},
       {{"OUT", dir.path()}, {"TMPDIR", dir.path()}},
       dir.File("out"),
       dir.File("err"),
       ""});
  ASSERT_TRUE(process.ok()) << process.status();
  ASSERT_TRUE(testing::WaitUntil([&] { return FileExists(dir.File("state")); }));
  std::string state = *ReadFile(dir.File("state"));
  state.pop_back();
  EXPECT_TRUE(FileExists(JoinPath(state, "file")));
  EXPECT_EQ(*ReadFile(dir.File("args")), "--server\na b'c\n--name\np\n--state_dir\n" + state +
                                             "\n--join_token_file\n" + JoinPath(folder, "p.token") +
                                             "\n--drain_on_stop\n19s\n");
  (*process)->Signal(SIGUSR1);
  const auto result = (*process)->Wait(absl::Seconds(30));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 5) << result->err;
  EXPECT_EQ(result->err, "");
  EXPECT_EQ(*ReadFile(dir.File("told")), "1\n");
  EXPECT_FALSE(FileExists(state));
  EXPECT_FALSE(FileExists(JoinPath(folder, "p.drain")));
}

TEST(ShellWordTest, NothingInAWordIsASign) {
  EXPECT_EQ(ShellWord("a b"), "'a b'");
  EXPECT_EQ(ShellWord("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellWord(""), "''");
}

}  // namespace
}  // namespace trainyard::provision::slurm
