// Tests jobs that run a program of the user's own: what it finds, what is taken over from it, and
// how its end is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/processes.h"
#include "tests/integration/yard.h"
#include "tests/testing/paths.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::trainyard::v1::Job;

// The folder of the module that scripts import.
std::string ModuleFolder() {
  return SourcePath("client/python");
}

std::string Indented(const std::string& text) {
  std::string indented = "    ";
  for (const char c : text) {
    indented += c;
    if (c == '\n') indented += "    ";
  }
  return indented;
}

// A job whose program is this Python script.
std::string PythonSpec(const std::string& name, int devices, const std::string& script,
                       const std::string& extra = "") {
  return absl::StrCat("name: ", name, "\ndevices: ", devices, "\n", extra,
                      "program:\n  env: {PYTHONPATH: ", ModuleFolder(),
                      "}\n  params: {steps: 2000, name: \"1.10\", words: [a, b]}\n",
                      "  script: |\n", Indented("#!/usr/bin/python3\n" + script), "\n");
}

class Program : public ::testing::Test {
 protected:
  void SetUp() override { yard_.Start(); }

  // Tells in a job, which has the environment that the test's jobs have.
  bool HasTorch() {
    return yard_.Cli({"run", "-q", "--", "/usr/bin/python3", "-c", "import torch.distributed"})
               .exit_code == 0;
  }

  Yard yard_;
};

TEST_F(Program, ACommandRunsAsIfItRanHere) {
  const ProcessResult well = yard_.Cli({"run", "--", "sh", "-c", "printf 'one\\ntwo'"});
  EXPECT_EQ(well.exit_code, 0) << well.err;
  EXPECT_EQ(well.out, "one\ntwo") << "stdout is the program's alone";
  EXPECT_THAT(well.err, HasSubstr("jobs/1 succeeded"));

  const ProcessResult badly =
      yard_.Cli({"run", "-q", "--", "sh", "-c", "echo begun; echo it broke >&2; exit 7"});
  EXPECT_EQ(badly.exit_code, 7) << badly.err;
  EXPECT_THAT(badly.out, AllOf(HasSubstr("begun\n"), HasSubstr("it broke\n")));
  const Job job = yard_.GetJob("jobs/2");
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.attempt(), 1) << "such an end is the program's own, and does not pass";
  EXPECT_EQ(job.failure().reason(), "PROGRAM_FAILED");
  EXPECT_EQ(job.failure().exit_code(), 7);
  EXPECT_THAT(job.failure().message(), HasSubstr("exited with code 7: it broke"));

  const ProcessResult missing = yard_.Cli({"run", "--", "no-such-program"});
  EXPECT_EQ(missing.exit_code, 127) << "as in shells";
  EXPECT_THAT(missing.err, AllOf(HasSubstr("PROGRAM_NOT_STARTED"), HasSubstr("no-such-program")));

  const ProcessResult shown = yard_.Cli({"show", "2"});
  EXPECT_THAT(shown.out, HasSubstr("sh -c echo begun"));
  EXPECT_THAT(yard_.Cli({"show", "2", "--spec"}).out, Not(HasSubstr("optimizer")));
}

TEST_F(Program, AProgramThatIsKilledIsTriedAgain) {
  const ProcessResult result =
      yard_.Cli({"run", "--set", "max_retries=1", "--", "sh", "-c",
                 "echo attempt $TRAINYARD_ATTEMPT; test $TRAINYARD_ATTEMPT = 2 || kill -KILL $$"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "attempt 1\nattempt 2\n");
}

TEST_F(Program, RanksFindEachOther) {
  const std::string job = yard_.Submit(PythonSpec("meet", 2, R"(
import os, socket
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
assert size == 2 and os.environ["LOCAL_WORLD_SIZE"] == "2", os.environ
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(address) as server:
        peer, _ = server.accept()
        print("heard", peer.recv(100).decode())
else:
    import time
    for _ in range(300):
        try:
            with socket.create_connection(address) as peer:
                peer.sendall(b"rank 1")
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
)"));
  const Job ended = yard_.WaitForEnd(job);
  const std::string logs = yard_.Cli({"logs", "1"}).out;
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message() << logs;
  EXPECT_THAT(logs, HasSubstr("[0] heard rank 1"));
}

TEST_F(Program, ParametersMetricsAndCheckpointsSurviveASuspension) {
  const std::string job = yard_.Submit(PythonSpec("counter", 1, R"(
import time, trainyard
assert trainyard.params == {"steps": 2000, "name": "1.10", "words": ["a", "b"]}, trainyard.params
start = 0
if trainyard.resume_from():
    start = int((trainyard.resume_from() / "step.txt").read_text())
    print("goes on from", start)
steps = trainyard.params["steps"] if not start else start + 20
trainyard.set_total_steps(steps)
for step in range(start + 1, steps + 1):
    time.sleep(0.01)
    trainyard.log(step, loss=1 / step)
    if trainyard.should_checkpoint(every=1000, step=step):
        with trainyard.checkpoint(step) as folder:
            (folder / "step.txt").write_text(str(step))
    if trainyard.should_stop():
        break
)"));
  ASSERT_TRUE(yard_.WaitForStep(job, 20));
  ASSERT_EQ(yard_.Cli({"suspend", "1"}).exit_code, 0);
  ASSERT_TRUE(
      yard_.WaitForJob(job, [](const Job& now) { return now.state() == v1::JOB_STATE_SUSPENDED; }));
  const Job suspended = yard_.GetJob(job);
  const int64_t step = suspended.progress().checkpoint_step();
  EXPECT_GE(step, 20) << "the request of the suspension made a checkpoint";
  ASSERT_EQ(yard_.Cli({"resume", "1"}).exit_code, 0);
  const Job ended = yard_.WaitForEnd(job);
  const std::string logs = yard_.Cli({"logs", "1"}).out;
  ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message() << logs;
  EXPECT_THAT(logs, HasSubstr(absl::StrCat("goes on from ", step)));
  EXPECT_EQ(ended.progress().step(), step + 20);
  const auto points = yard_.Metrics(job, "loss");
  ASSERT_EQ(static_cast<int64_t>(points.size()), step + 20) << "no step is lost or told twice";

  const std::string folder = yard_.File("got");
  const ProcessResult got = yard_.Cli({"checkpoints", "get", "1", "-O", folder});
  ASSERT_EQ(got.exit_code, 0) << got.err;
}

TEST_F(Program, WhatCannotBePreparedIsTold) {
  const std::string job = yard_.Submit(
      "name: unprepared\nprogram:\n  environment: {setup: 'echo no such thing; false'}\n"
      "  script: echo never\n");
  const Job ended = yard_.WaitForEnd(job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(ended.failure().reason(), "PREPARATION_FAILED");
  EXPECT_THAT(ended.failure().message(), HasSubstr("no such thing"));
}

TEST_F(Program, AHostMayHaveOneProcess) {
  const std::string job = yard_.Submit(
      "name: host\ndevices: 2\nprogram:\n  ranks: host\n  command: [sh, -c, 'echo rank $RANK of "
      "$WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE here; echo once']\n");
  EXPECT_EQ(yard_.WaitForEnd(job).state(), v1::JOB_STATE_SUCCEEDED);
  const std::string logs = yard_.Cli({"logs", job}).out;
  EXPECT_EQ(logs, "[0] rank 0 of 1, 0 of 1 here\n[0] once\n");
}

TEST_F(Program, TorchrunMayBeTheCommand) {
  if (!HasTorch()) GTEST_SKIP() << "/usr/bin/python3 has no PyTorch";
  ASSERT_TRUE(WriteFileAtomically(yard_.File("sum.py"), R"(
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1) * (dist.get_rank() + 1)
dist.all_reduce(x)
print("rank", dist.get_rank(), "has", x.item(), flush=True)
)")
                  .ok());
  // PyTorch 1.13 cannot start ranks with Python 3.11 unless it redirects their output.
  const std::string job = yard_.Submit(absl::StrCat(
      "name: torchrun\ndevices: 2\nprogram:\n  ranks: host\n  command: [/usr/bin/python3, -m, "
      "torch.distributed.run, --nproc_per_node, '2', -r, '1', -t, '1', ",
      yard_.File("sum.py"), "]\n"));
  const Job ended = yard_.WaitForEnd(job);
  const std::string logs = yard_.Cli({"logs", job}).out;
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message() << logs;
  EXPECT_THAT(logs, AllOf(HasSubstr("rank 0 has 3.0"), HasSubstr("rank 1 has 3.0")));
}

TEST_F(Program, APyTorchScriptOfTwoRanksAgreesOnItsGradients) {
  if (!HasTorch()) GTEST_SKIP() << "/usr/bin/python3 has no PyTorch";
  const std::string job = yard_.Submit(PythonSpec("ddp", 2, R"(
import torch
import torch.distributed as dist
import trainyard
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(1, 21):
    loss = (model(torch.randn(8, 4)) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    trainyard.log(step, loss=loss)
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
both = [torch.empty_like(weights) for _ in range(2)]
dist.all_gather(both, weights)
assert torch.equal(both[0], both[1])
print("equal weights")
)"));
  const Job ended = yard_.WaitForEnd(job);
  const std::string logs = yard_.Cli({"logs", job}).out;
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message() << logs;
  EXPECT_THAT(logs, AllOf(HasSubstr("[0] equal weights"), HasSubstr("[1] equal weights")));
  EXPECT_EQ(yard_.Metrics(job, "loss").size(), 20u);
  EXPECT_EQ(yard_.Metrics(job, "loss.rank1").size(), 20u);
}

// One device, which an urgent job takes from another one at once.
class StoppedProgram : public ::testing::Test {
 protected:
  static Yard::Options Options() {
    Yard::Options options;
    options.cpu_devices = 1;
    options.server_flags = {"--min_runtime", "0s"};
    return options;
  }
  void SetUp() override { yard_.Start(); }

  Yard yard_{Options()};
};

TEST_F(StoppedProgram, APreemptedScriptSavesItsLastStepsAndGoesOnFromThere) {
  // The first attempt trains until it is told to stop, and does one more step before it saves. The
  // second one does five steps.
  const std::string victim = yard_.Submit(PythonSpec("victim", 1, R"(
import os, pathlib, signal, time, trainyard
signals = []
signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
stop_requested = pathlib.Path(os.environ["TRAINYARD_RUN_DIR"]) / "stop_requested"
def train(step):
    trainyard.log(step, loss=1 / step)
def save(step):
    with trainyard.checkpoint(step) as folder:
        (folder / "step.txt").write_text(str(step))
start = trainyard.resume_from()
step = int((start / "step.txt").read_text()) if start else 0
print("starts after", step)
if start:
    for _ in range(5):
        step += 1
        train(step)
else:
    while not signals:
        step += 1
        train(step)
        if trainyard.should_checkpoint():
            save(step)
        time.sleep(0.01)
    while not stop_requested.exists():
        time.sleep(0.01)
    step += 1
    train(step)
    save(step)
    print("was stopped after", step)
)"));
  ASSERT_TRUE(yard_.WaitForStep(victim, 5));
  const std::string urgent =
      yard_.Submit("name: urgent\npriority: 10\nprogram:\n  command: [\"true\"]\n");
  EXPECT_EQ(yard_.WaitForEnd(urgent).state(), v1::JOB_STATE_SUCCEEDED);
  const Job ended = yard_.WaitForEnd(victim);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();
  EXPECT_EQ(ended.attempt(), 2);
  EXPECT_EQ(ended.preemptions(), 1);
  EXPECT_EQ(ended.retries(), 0);
  const auto points = yard_.Metrics(victim, "loss");
  for (size_t i = 0; i < points.size(); ++i) {
    ASSERT_EQ(points[i].step(), static_cast<int64_t>(i) + 1) << "no step is lost or done again";
  }
  const int64_t last = static_cast<int64_t>(points.size()) - 5;
  EXPECT_THAT(yard_.Cli({"logs", "1", "--attempt", "1"}).out,
              HasSubstr(absl::StrCat("was stopped after ", last, "\n")));
  EXPECT_THAT(yard_.Cli({"logs", "1"}).out, HasSubstr(absl::StrCat("starts after ", last, "\n")));
  EXPECT_THAT(yard_.Cli({"show", "1", "--events"}).out,
              AllOf(HasSubstr("ATTEMPT_PREEMPTED"), Not(HasSubstr("RANKS_KILLED"))));
}

TEST_F(StoppedProgram, AScriptThatDoesNotListenIsKilledAndTheHistoryTells) {
  const std::string job = yard_.Submit(absl::StrCat(R"(name: deaf
program:
  script: |
    trap '' TERM
    echo $$ >)",
                                                    yard_.File("pid"), R"(
    echo '{"step": 1, "metrics": {"loss": 1}}' >$TRAINYARD_RUN_DIR/metrics.jsonl
    while true; do sleep 0.1; done
)"));
  ASSERT_TRUE(yard_.WaitForStep(job, 1));
  int64_t pid = 0;
  ASSERT_TRUE(absl::SimpleAtoi(ReadFile(yard_.File("pid")).value_or(""), &pid));
  ASSERT_TRUE(ReadProcess(pid).ok());
  EXPECT_EQ(yard_.Cli({"cancel", job}).exit_code, 0);
  EXPECT_EQ(yard_.WaitForEnd(job).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_FALSE(ReadProcess(pid).ok());
  EXPECT_THAT(yard_.Cli({"show", job, "--events"}).out,
              ContainsRegex("RANKS_KILLED.*rank 0 did not answer; it .*, and was killed when its "
                            "grace was over"));
}

}  // namespace
}  // namespace trainyard::testing
