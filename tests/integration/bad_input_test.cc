// Tests mistakes of users and failures of machines: each gives a clear error, and nothing that was
// acknowledged is lost.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"
#include "tests/testing/paths.h"

namespace trainyard::testing {
namespace {

using ::trainyard::v1::Job;

TEST(BadInput, FiveMistakesInASpecAreReportedAtOnceWithTheirPlaces) {
  Yard yard;
  yard.StartServer();
  const std::string path = yard.File("bad.yaml");
  ASSERT_TRUE(WriteFileAtomically(path, R"(name: bad
modle: {convnet: {}}
data: {dataset: fashion-minst}
train: {epochs: 3, global_batch: many}
optimizer: {sgd: {lr: 0.1, momentum: 1.5}}
time_limit: 30
)")
                  .ok());
  const ProcessResult result = yard.Cli({"submit", path});
  EXPECT_EQ(result.exit_code, 2);
  for (const char* expected : {"bad.yaml:2:1", "modle", "model", "fashion-mnist", "global_batch",
                               "4:34", "momentum", "time_limit", "unit"}) {
    EXPECT_TRUE(absl::StrContains(result.err, expected)) << expected << " is not in:\n"
                                                         << result.err;
  }
  EXPECT_TRUE(yard.CliJson({"ls", "-a"}).empty());
}

// Submits a job that is placed as soon as the worker registers, which is before the worker has told
// which data sets it has. Later, the server would not place the job there. Returns its name.
std::string SubmitBeforeTheWorker(Yard& yard, const std::string& spec) {
  std::string job = yard.Submit(spec, {"--wait-for-devices"});
  yard.StartWorker();
  return job;
}

TEST(BadInput, ADatasetThatIsNotThereFailsTheJobAndSaysWhereItWasLookedFor) {
  TempDir empty;
  Yard::Options options;
  options.dataset_dir = empty.path();
  Yard yard(std::move(options));
  yard.StartServer();
  std::string spec = SmallSpec("lacking", 1, 1, 0);
  spec.replace(spec.find("dataset: glyphs, train_size: 0, test_size: 500"),
               strlen("dataset: glyphs, train_size: 0, test_size: 500"), "dataset: fashion-mnist");
  const Job job = yard.WaitForEnd(SubmitBeforeTheWorker(yard, spec));
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.attempt(), 1);
  EXPECT_EQ(job.failure().failure_class(), v1::FAILURE_CLASS_USER_ERROR);
  EXPECT_EQ(job.failure().reason(), "DATASET_NOT_FOUND");
  EXPECT_TRUE(absl::StrContains(job.failure().message(), "train-images-idx3-ubyte"))
      << job.failure().message();
}

TEST(BadInput, ATruncatedIdxFileFailsTheJobAndNamesThePosition) {
  const auto source = DataPath("fashion-mnist");
  if (!source.has_value()) GTEST_SKIP() << MissingData("fashion-mnist");
  TempDir data;
  const auto names = ListDirectory(*source);
  ASSERT_TRUE(names.ok()) << names.status();
  for (const std::string& name : *names) {
    std::string content = *ReadFile(JoinPath(*source, name));
    if (name == "train-images-idx3-ubyte.gz") content.resize(content.size() / 2);
    ASSERT_TRUE(WriteFileAtomically(data.File(name), content).ok());
  }
  Yard::Options options;
  options.dataset_dir = data.path();
  Yard yard(std::move(options));
  yard.StartServer();
  std::string spec = SmallSpec("torn", 1, 1, 0);
  spec.replace(spec.find("dataset: glyphs, train_size: 0, test_size: 500"),
               strlen("dataset: glyphs, train_size: 0, test_size: 500"), "dataset: fashion-mnist");
  const Job job = yard.WaitForEnd(SubmitBeforeTheWorker(yard, spec));
  EXPECT_EQ(job.state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(job.failure().failure_class(), v1::FAILURE_CLASS_USER_ERROR);
  EXPECT_TRUE(absl::StrContains(job.failure().message(), "train-images-idx3-ubyte.gz"))
      << job.failure().message();
}

// Starts a server that must refuse to run, and returns its message.
std::string RefusedServer(const std::string& state_dir, const std::string& listen,
                          const std::string& scratch, int uid = -1) {
  Process::Options options;
  options.args = {Yard::Binary("trainyard-server"), "--state_dir", state_dir, "--listen", listen};
  options.uid = uid;
  const auto result = RunProcess(std::move(options), scratch, kPatience);
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return "";
  EXPECT_NE(result->exit_code, 0);
  EXPECT_EQ(result->signal, 0) << result->err;
  return result->err;
}

TEST(BadInput, ASecondServerOnTheSameStateIsRefused) {
  Yard yard;
  yard.StartServer();
  const std::string err = RefusedServer(
      yard.server_state_dir(), absl::StrCat("unix:", yard.File("other.sock")), yard.File("."));
  EXPECT_TRUE(absl::StrContains(err, "in use by process")) << err;
  EXPECT_TRUE(absl::StrContains(err, "--state_dir")) << err;
  EXPECT_TRUE(yard.CliJson({"ls", "-a"}).empty());  // the first server still serves
}

TEST(BadInput, AnAddressInUseIsRefused) {
  Yard yard;
  yard.StartServer();
  const std::string err = RefusedServer(yard.File("other-state"), yard.address(), yard.File("."));
  EXPECT_TRUE(absl::StrContains(err, "in use")) << err;
  EXPECT_TRUE(yard.CliJson({"ls", "-a"}).empty());
}

TEST(BadInput, AnAddressThatIsNotLoopbackIsRefused) {
  TempDir dir;
  const std::string err = RefusedServer(dir.File("state"), "0.0.0.0:0", dir.path());
  EXPECT_TRUE(absl::StrContains(err, "loopback")) << err;
}

TEST(BadInput, AStateDirectoryOfSomebodyElseIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to make a directory of another user";
  TempDir dir;
  ASSERT_TRUE(MakeDirectories(dir.File("state")).ok());
  ASSERT_EQ(chown(dir.File("state").c_str(), 65534, 65534), 0);
  const std::string err =
      RefusedServer(dir.File("state"), absl::StrCat("unix:", dir.File("s.sock")), dir.path());
  EXPECT_TRUE(absl::StrContains(err, "belongs to uid 65534")) << err;
}

TEST(BadInput, ACommandWithoutAServerSaysHowToStartOne) {
  Yard yard;
  const ProcessResult result = yard.Cli({"ls"});
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_TRUE(absl::StrContains(result.err, "trainyard up")) << result.err;
}

TEST(BadInput, WhatIsNotThereIsNotFound) {
  Yard yard;
  yard.StartServer();
  EXPECT_EQ(yard.Cli({"show", "77"}).exit_code, 3);
  EXPECT_EQ(yard.Cli({"show"}).exit_code, 2);
  EXPECT_EQ(yard.Cli({"submit", "no-such-file.yaml"}).exit_code, 3);
  EXPECT_EQ(yard.Cli({"no-such-verb"}).exit_code, 2);
}

TEST(BadInput, AFullDiskRefusesNewJobsLosesNoneAndHeals) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to mount a small tmpfs";
  TempDir dir;
  const std::string state = dir.File("small");
  ASSERT_TRUE(MakeDirectories(state).ok());
  if (mount("tmpfs", state.c_str(), "tmpfs", 0, "size=2m,mode=0700") != 0) {
    GTEST_SKIP() << "cannot mount a tmpfs here: " << strerror(errno);
  }
  struct Unmount {
    std::string path;
    ~Unmount() { umount2(path.c_str(), MNT_DETACH); }
  } unmount{state};
  Yard::Options options;
  options.server_state_dir = state;
  Yard yard(std::move(options));
  yard.StartServer();
  const std::string before = yard.Submit(SmallSpec("before", 1, 1, 500));
  // This takes the rest of the disk.
  const std::string filler = JoinPath(state, "filler");
  {
    auto fd = OpenFile(filler, O_WRONLY | O_CREAT);
    ASSERT_TRUE(fd.ok());
    const std::string block(4096, 'x');
    while (WriteFully(fd->get(), block, filler).ok()) {
    }
  }
  const std::string spec = yard.File("after.yaml");
  ASSERT_TRUE(WriteFileAtomically(spec, SmallSpec("after", 1, 1, 500)).ok());
  // The write-ahead log may have some room of its own left: submit until it is used up.
  ProcessResult refused;
  int accepted = 0;
  for (int i = 0; i < 500; ++i) {
    refused = yard.Cli({"submit", spec, "-o", "name"});
    if (refused.exit_code != 0) break;
    ++accepted;
  }
  ASSERT_NE(refused.exit_code, 0);
  EXPECT_TRUE(absl::StrContains(refused.err, "no space left")) << refused.err;
  EXPECT_TRUE(yard.server()->running());
  EXPECT_EQ(yard.GetJob(before).name(), before);
  unlink(filler.c_str());
  const std::string after = yard.Submit(SmallSpec("healed", 1, 1, 500));
  EXPECT_EQ(yard.GetJob(after).spec().name(), "healed");
  yard.KillServer();
  yard.StartServer();
  EXPECT_EQ(yard.CliJson({"ls", "-a", "--limit", "1000"}).size(),
            static_cast<size_t>(accepted + 2));
}

}  // namespace
}  // namespace trainyard::testing
