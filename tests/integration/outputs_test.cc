// Tests what programs leave: the files that are kept with their jobs, and the checkpoints from
// which they go on, whatever ends their attempts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"
#include "tests/testing/paths.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::trainyard::v1::Job;

std::string Indented(const std::string& text) {
  return absl::StrCat("    ", absl::StrJoin(absl::StrSplit(text, '\n'), "\n    "));
}

std::string ShellSpec(const std::string& script, const std::string& more) {
  return absl::StrCat("name: leaves\n", more, "program:\n  script: |\n", Indented(script), "\n");
}

// Counts to 60, with a checkpoint in folders at each tenth step, and leaves how far it came. What
// stands in `extra` runs at each step.
std::string CounterSpec(const std::string& head, const std::string& extra, int steps = 60) {
  return absl::StrCat("name: counter\noutputs: [out]\n", head,
                      "program:\n  env: {PYTHONPATH: ", SourcePath("client/python"),
                      "}\n  script: |\n",
                      Indented(absl::StrCat(R"(#!/usr/bin/python3
import os, pathlib, signal, time, trainyard
rank, attempt = trainyard.rank(), int(os.environ["TRAINYARD_ATTEMPT"])
start = trainyard.resume_from()
first = int((start / "deep/er/step.txt").read_text()) if start else 0
print("attempt", attempt, "begins after", first, "of", trainyard.world_size(), flush=True)
trainyard.set_total_steps()",
                                            steps, R"()
pathlib.Path("out").mkdir()
for step in range(first + 1, )",
                                            steps, R"( + 1):
    time.sleep(0.02)
    trainyard.log(step, loss=1 / step)
    if rank == 0 and trainyard.should_checkpoint(every=10, step=step):
        with trainyard.checkpoint(step) as folder:
            (folder / "deep/er").mkdir(parents=True)
            (folder / "deep/er/step.txt").write_text(str(step))
    pathlib.Path("out/step.txt").write_text(str(step))
    if trainyard.should_stop():
        break
    )",
                                            extra)),
                      "\n");
}

class Outputs : public ::testing::Test {
 protected:
  static Yard::Options Options() {
    Yard::Options options;
    options.server_flags = {"--min_runtime", "0s"};  // urgent jobs need not wait for others to run
    return options;
  }

  void SetUp() override { yard_.Start(); }

  void ExpectEveryStepOnce(const std::string& job, int steps) {
    std::map<int64_t, int> seen;
    for (const auto& point : yard_.Metrics(job, "loss")) ++seen[point.step()];
    EXPECT_EQ(seen.size(), static_cast<size_t>(steps));
    for (const auto& [step, times] : seen) EXPECT_EQ(times, 1) << "step " << step;
  }
  std::string OutputOf(const std::string& job, const std::string& name) {
    const std::string path = yard_.File("copied");
    (void)RemoveTree(path);
    const ProcessResult copied = yard_.Cli({"cp", absl::StrCat(job.substr(5), ":", name), path});
    return copied.exit_code == 0 ? ReadFile(path).value_or("no file") : copied.err;
  }

  Yard yard_{Options()};
};

TEST_F(Outputs, AreKeptWhateverTheEndAndCanBeCopied) {
  const std::string job = yard_.Submit(ShellSpec(
      "mkdir -p results/deep data; echo 1,2 > results/a.csv; echo x > data/huge\n"
      "head -c 3000000 /dev/urandom > results/deep/b.bin; ln -s /etc/passwd results/link\n"
      "sha256sum < results/deep/b.bin; echo note > note.txt; exit 3",
      "outputs: [results/**, '*.txt']\n"));
  EXPECT_EQ(yard_.WaitForEnd(job).state(), v1::JOB_STATE_FAILED);
  const ProcessResult listed = yard_.Cli({"outputs", "ls", "1"});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(listed.out,
              AllOf(HasSubstr("results/a.csv"), HasSubstr("results/deep/b.bin"),
                    HasSubstr("note.txt"), Not(HasSubstr("link")), Not(HasSubstr("huge"))));
  EXPECT_EQ(OutputOf(job, "results/a.csv"), "1,2\n");
  const std::string folder = yard_.File("got");
  const ProcessResult copied = yard_.Cli({"cp", "-r", "1:results", folder});
  ASSERT_EQ(copied.exit_code, 0) << copied.err;
  EXPECT_EQ(ReadFile(folder + "/a.csv").value_or(""), "1,2\n");
  const auto binary = ReadFile(folder + "/deep/b.bin");
  ASSERT_TRUE(binary.ok()) << binary.status();
  EXPECT_EQ(binary->size(), 3'000'000u);
  EXPECT_THAT(yard_.Cli({"cp", "-r", "1:results", folder}).err, HasSubstr("is here already"));

  EXPECT_THAT(yard_.Cli({"cp", "1:results", folder}).err, HasSubstr("-r copies all of them"));
  EXPECT_THAT(yard_.Cli({"cp", "1:results/b.csv", folder}).err,
              HasSubstr("did you mean 'results/a.csv'?"));
  EXPECT_THAT(
      yard_.Cli({"show", "1", "--events"}).out,
      AllOf(HasSubstr("3 outputs of attempt 1"), HasSubstr("'results/link' is a symbolic link")));
  ASSERT_EQ(yard_.Cli({"rm", "1", "--yes"}).exit_code, 0);
  EXPECT_NE(yard_.Cli({"outputs", "ls", "1"}).exit_code, 0);
}

TEST_F(Outputs, OfTheNewestAttemptTakeThePlaceOfThoseBefore) {
  const std::string job =
      yard_.Submit(ShellSpec("echo $TRAINYARD_ATTEMPT > n.txt; echo > only-$TRAINYARD_ATTEMPT.txt\n"
                             "test $TRAINYARD_ATTEMPT = 2 || kill -KILL $$",
                             "outputs: ['*.txt']\nmax_retries: 1\n"));
  EXPECT_EQ(yard_.WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(OutputOf(job, "n.txt"), "2\n");
  EXPECT_THAT(yard_.Cli({"outputs", "ls", "1"}).out,
              AllOf(HasSubstr("only-2.txt"), Not(HasSubstr("only-1.txt"))));
}

TEST_F(Outputs, ADeadRankOfTwoGoesOnFromTheLastCheckpoint) {
  const std::string job = yard_.Submit(
      CounterSpec("devices: 2\nmax_retries: 1\n",
                  "if rank == 1 and attempt == 1 and step == 35: os.kill(os.getpid(), 9)"));
  const Job ended = yard_.WaitForEnd(job);
  const std::string logs = yard_.Cli({"logs", "1"}).out;
  ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message() << logs;
  EXPECT_THAT(logs, HasSubstr("attempt 2 begins after"));
  EXPECT_THAT(logs, Not(HasSubstr("attempt 2 begins after 0")));
  ExpectEveryStepOnce(job, 60);
  EXPECT_EQ(OutputOf(job, "out/step.txt"), "60");
  const std::string folder = yard_.File("checkpoint");
  ASSERT_EQ(yard_.Cli({"cp", "1:checkpoints/60", folder}).exit_code, 0);
  EXPECT_EQ(ReadFile(folder + "/deep/er/step.txt").value_or(""), "60");
}

TEST_F(Outputs, AProgramOutlivesTheDeathOfWorkerAndServer) {
  const std::string job = yard_.Submit(CounterSpec("", "", 150));
  ASSERT_TRUE(yard_.WaitForStep(job, 15));
  yard_.KillWorker();
  yard_.StartWorker();
  ASSERT_TRUE(yard_.WaitForStep(job, 40));
  yard_.KillServer();
  yard_.StartServer();
  const Job ended = yard_.WaitForEnd(job);
  ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();
  EXPECT_EQ(ended.attempt(), 1);
  ExpectEveryStepOnce(job, 150);
  EXPECT_EQ(OutputOf(job, "out/step.txt"), "150");
}

TEST_F(Outputs, AnElasticProgramGoesOnWithAnotherNumberOfRanks) {
  const std::string job = yard_.Submit(CounterSpec("devices: {min: 1, max: 2}\n", "", 300));
  ASSERT_TRUE(yard_.WaitForStep(job, 20));
  const std::string urgent =
      yard_.Submit("name: urgent\npriority: 10\nprogram: {command: [sleep, '1']}\n");
  EXPECT_EQ(yard_.WaitForEnd(urgent).state(), v1::JOB_STATE_SUCCEEDED);
  const Job ended = yard_.WaitForEnd(job);
  ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();
  EXPECT_THAT(yard_.Cli({"logs", job, "--attempt", "1"}).out,
              HasSubstr("attempt 1 begins after 0 of 2"));
  EXPECT_THAT(yard_.Cli({"logs", job, "--attempt", "2"}).out,
              AllOf(HasSubstr(" of 1\n"), Not(HasSubstr("after 0 "))));
  ExpectEveryStepOnce(job, 300);
}

TEST_F(Outputs, AJobMayHaveOneProcessOnOneHost) {
  const std::string job = yard_.Submit(
      "name: one\ndevices: 2\nprogram: {ranks: one, command: [sh, -c, 'echo rank $RANK of "
      "$WORLD_SIZE']}\n");
  EXPECT_EQ(yard_.WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(yard_.Cli({"logs", job}).out, "[0] rank 0 of 1\n");
  yard_.StartWorker("beta");
  yard_.WaitForWorkers(2);
  const ProcessResult refused =
      yard_.Cli({"run", "--devices", "3", "--set", "program.ranks=one", "--", "true"});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("no host has as many"));
}

TEST_F(Outputs, EventFilesBecomeCurves) {
  const std::string job = yard_.Submit(absl::StrCat(
      "name: events\nprogram:\n  tensorboard: runs\n  script: |\n",
      Indented(ReadFile(SourcePath("tests/integration/event_writer.py")).value()), "\n"));
  const Job ended = yard_.WaitForEnd(job);
  const std::string logs = yard_.Cli({"logs", job}).out;
  ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message() << logs;
  const auto points = yard_.Metrics(job, "loss");
  ASSERT_EQ(points.size(), 100u) << logs;
  EXPECT_EQ(points[3].step(), 4);
  EXPECT_EQ(points[3].value(), 0.25);
  EXPECT_EQ(yard_.Metrics(job, "test/accuracy").size(), 10u);

  // They go back as they came, for whoever looks at them in TensorBoard.
  const std::string folder = yard_.File("runs");
  const ProcessResult written = yard_.Cli({"metrics", job, "--tensorboard", folder});
  ASSERT_EQ(written.exit_code, 0) << written.err;
  const auto files = ListDirectory(JoinPath(folder, "job-1"));
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->size(), 1u);
  EXPECT_EQ(files->front(), "events.out.tfevents.1790000001.trainyard");
  Process::Options options;
  options.args = {"/usr/bin/python3", SourcePath("tests/integration/event_reader.py"),
                  JoinPath(folder, "job-1/" + files->front())};
  const auto read = RunProcess(std::move(options), yard_.File(""), kPatience);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->exit_code, 0) << read->err;
  EXPECT_THAT(read->out, HasSubstr("loss 4 0.25 1790000004.5\n"));
  EXPECT_THAT(read->out, HasSubstr("test/accuracy 100 1.0 1790000100.5\n"));
  EXPECT_EQ(std::count(read->out.begin(), read->out.end(), '\n'), 110);

  const std::string csv = yard_.Cli({"metrics", job, "--metric", "loss", "-o", "csv"}).out;
  EXPECT_EQ(csv.substr(0, csv.find('\n')), "step,name,value,time,attempt");
  EXPECT_THAT(csv, HasSubstr("\n4,loss,0.25,"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 101);
}

}  // namespace
}  // namespace trainyard::testing
