// Tests how strictly programs are kept apart from their host, with the real programs. What needs
// bubblewrap or a container runtime is skipped where it is missing; control groups are tested by
// `make isolation`.
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/integration/yard.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Isolation : public ::testing::Test {
 protected:
  // Starts server and worker, which see a home that they may write to.
  void Start(std::map<std::string, std::string> environment = {}) {
    ASSERT_TRUE(MakeDirectories(home_.File("home")).ok());
    Yard::Options options;
    options.worker_environment = std::move(environment);
    options.worker_environment.insert({{"HOME", home_.File("home")}, {"USER", "anna"}});
    options.worker_flags = {"--cgroup", "none", "--share_cpus"};
    yard_ = std::make_unique<Yard>(std::move(options));
    yard_->Start();
    yard_->WaitForWorkers(1);
  }

  // Returns true if the worker has this label.
  bool Has(const std::string& label) {
    return yard_->CliJson({"workers", "ls"})[0]["labels"].contains(label);
  }

  // Runs a shell script as a job at this level.
  ProcessResult Run(const std::string& set, const std::string& script, int devices = 1) {
    return yard_->Cli(
        {"run", "-q", "--devices", absl::StrCat(devices), "--set", set, "--", "sh", "-c", script});
  }

  v1::Isolation LevelOf(const std::string& job) {
    v1::ListAttemptsRequest request;
    request.set_parent(job);
    v1::ListAttemptsResponse response;
    grpc::ClientContext context;
    EXPECT_TRUE(yard_->jobs().ListAttempts(&context, request, &response).ok());
    return response.attempts().empty() ? v1::ISOLATION_UNSPECIFIED
                                       : response.attempts(0).isolation();
  }

  TempDir home_;
  std::unique_ptr<Yard> yard_;
};

TEST_F(Isolation, TheLevelOfAnAttemptIsRecordedAndShown) {
  Start();
  EXPECT_EQ(Run("priority=0", "true").exit_code, 0);
  EXPECT_EQ(LevelOf("jobs/1"), v1::ISOLATION_PROCESS);
  EXPECT_THAT(yard_->Cli({"show", "1"}).out, HasSubstr("process group, without a limit of memory"));
  yard_->KillServer();
  yard_->StartServer();
  EXPECT_EQ(LevelOf("jobs/1"), v1::ISOLATION_PROCESS) << "the store keeps it";
}

TEST_F(Isolation, AJobThatNoWorkerCanKeepApartIsRefusedWithTheReason) {
  Start();
  const ProcessResult refused = Run("program.isolation=cgroup", "true");
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("can never run"), HasSubstr("isolation.cgroup=yes")));
  const ProcessResult waits = yard_->Cli(
      {"submit", "--wait-for-devices", "--set", "program.isolation=cgroup", "--", "true"});
  EXPECT_EQ(waits.exit_code, 0) << waits.err;
  EXPECT_THAT(yard_->Cli({"explain", "last"}).out, HasSubstr("isolation.cgroup"));
  const ProcessResult without = Run("program.isolation=container", "true");
  EXPECT_THAT(without.err, HasSubstr("environment.container"));
}

TEST_F(Isolation, ASandboxHidesTheHostButNotWhatTheProgramNeeds) {
  Start();
  if (!Has("isolation.sandbox")) GTEST_SKIP() << "bubblewrap (bwrap) is not installed";
  const TempDir outside;
  outside.Write("secret", "of others");
  const ProcessResult result =
      Run("program.isolation=sandbox",
          absl::StrCat("ls /tmp | wc -l; cat ", outside.File("secret"),
                       "; touch /etc/of-job || echo readonly; touch /tmp/mine && echo scratch; "
                       "touch $HOME/kept && echo home; touch here && echo start; "
                       "echo '{\"step\": 3, \"metrics\": {\"loss\": 0.5}}' >$TRAINYARD_RUN_DIR/"
                       "metrics.jsonl; ls /dev/nvidia* /dev/kvm 2>/dev/null | wc -l; ls /dev/null; "
                       "test $(ls -d /proc/[0-9]* | wc -l) -lt 10 && echo alone; exit 7"));
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("readonly\n"), HasSubstr("scratch\n"), HasSubstr("home\n"),
                    HasSubstr("start\n"), HasSubstr("alone\n"), HasSubstr("0\n/dev/null\n")));
  EXPECT_THAT(result.out, Not(HasSubstr("of others")));
  EXPECT_FALSE(FileExists("/tmp/mine"));
  EXPECT_TRUE(FileExists(home_.File("home/kept")));
  EXPECT_EQ(LevelOf("jobs/1"), v1::ISOLATION_SANDBOX);
  const v1::Job job = yard_->GetJob("jobs/1");
  EXPECT_EQ(job.progress().step(), 3) << "what it told has arrived";
  EXPECT_THAT(job.failure().message(), HasSubstr("exited with code 7"));
  const ProcessResult missing =
      yard_->Cli({"run", "-q", "--set", "program.isolation=sandbox", "--", "no-such-program"});
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_THAT(missing.out, HasSubstr("cannot execute 'no-such-program'"));
}

TEST_F(Isolation, AProgramInASandboxHearsThatItIsToStop) {
  Start();
  if (!Has("isolation.sandbox")) GTEST_SKIP() << "bubblewrap (bwrap) is not installed";
  const std::string job = yard_->Submit(R"(name: stops
devices: 2
program:
  isolation: sandbox
  script: |
    trap 'echo heard; echo done >$HOME/heard-$RANK; exit 0' TERM
    echo '{"step": 1, "metrics": {"loss": 1}}' >$TRAINYARD_RUN_DIR/metrics.jsonl
    while true; do sleep 0.1; done
)");
  ASSERT_TRUE(yard_->WaitForStep(job, 1));
  EXPECT_EQ(yard_->Cli({"cancel", job}).exit_code, 0);
  EXPECT_EQ(yard_->WaitForEnd(job).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_TRUE(FileExists(home_.File("home/heard-0")));
  EXPECT_TRUE(FileExists(home_.File("home/heard-1"))) << "of a gang, every rank hears it";
}

TEST_F(Isolation, ASandboxThatCannotBeMadeIsNotTheUsersFault) {
  Start({{"HOME", home_.Write("file", "") + "/home"}});
  if (!Has("isolation.sandbox")) GTEST_SKIP() << "bubblewrap (bwrap) is not installed";
  // Bubblewrap cannot mount a home below a file.
  const ProcessResult result = yard_->Cli(
      {"run", "-q", "--set", "program.isolation=sandbox", "--set", "max_retries=1", "--", "true"});
  EXPECT_NE(result.exit_code, 0);
  const v1::Job job = yard_->GetJob("jobs/1");
  EXPECT_EQ(job.attempt(), 2) << "it is tried again, and not for ever";
  EXPECT_EQ(job.failure().reason(), "ISOLATION_FAILED");
  EXPECT_THAT(job.failure().message(), HasSubstr("the sandbox could not be made: bwrap: "));
}

// Makes an image folder of the system's own shell and of what it needs.
std::string SmallImage(const TempDir& folder) {
  const std::string root = folder.File("image");
  const std::string script = absl::StrCat(
      "set -e; mkdir -p ", root, "/bin ", root, "/etc ", root, "/tmp ", root, "/dev ", root,
      "/proc ", root, "/sys ", root, "/home ", root, "/root ", root, "/mnt; cp /bin/sh /bin/cat ",
      root, "/bin/; for lib in $(ldd /bin/sh /bin/cat | grep -o '/[^ :]*' | sort -u); do mkdir -p ",
      root, "$(dirname $lib); cp -L $lib ", root, "$lib; done; echo small >", root,
      "/etc/image; touch ", root, "/etc/passwd ", root, "/etc/group ", root, "/etc/hosts ", root,
      "/etc/resolv.conf");
  Process::Options options;
  options.args = {"/bin/sh", "-c", script};
  const auto made = RunProcess(options, folder.path(), kPatience);
  EXPECT_TRUE(made.ok() && made->exit_code == 0) << (made.ok() ? made->err : "");
  return root;
}

TEST_F(Isolation, AContainerRunsTheProgramInItsImage) {
  // Podman's own default runtime cannot run where control groups are of version 1.
  const TempDir folder;
  const std::string config = folder.Write(
      "containers.conf", "[engine]\nruntime = \"runc\"\n[containers]\ncgroups = \"enabled\"\n");
  Start({{"CONTAINERS_CONF", config}});
  if (!Has("isolation.container")) GTEST_SKIP() << "no container runtime is installed";
  const std::string image = SmallImage(folder);
  const ProcessResult result =
      Run("program.environment.container=" + image,
          "cat /etc/image; echo rank $RANK of $WORLD_SIZE; cat $TRAINYARD_PARAMS; "
          "echo '{\"step\": 5}' >$TRAINYARD_RUN_DIR/metrics.jsonl; exit 3");
  if (result.out.find("small") == std::string::npos &&
      yard_->GetJob("jobs/1").failure().reason() == "ISOLATION_FAILED") {
    GTEST_SKIP() << "containers cannot run here: " << yard_->GetJob("jobs/1").failure().message();
  }
  EXPECT_EQ(result.exit_code, 3) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("small\n"), HasSubstr("rank 0 of 1\n")));
  EXPECT_EQ(LevelOf("jobs/1"), v1::ISOLATION_CONTAINER);
  EXPECT_EQ(yard_->GetJob("jobs/1").progress().step(), 5);
  EXPECT_THAT(yard_->Cli({"show", "1", "--environment"}).out,
              HasSubstr("none: the image is a folder"));
}

// Mounts a folder with a podman of the test's own, in a mount namespace that this thread and all
// that it starts from now on share. It runs the command without any image.
class FakePodman {
 public:
  FakePodman() {
    const std::string path = folder_.Write("podman", absl::StrCat(R"(#!/bin/sh
if [ "$1 $2" = 'image inspect' ]; then exec cat )",
                                                                  digest_, R"(; fi
while [ "$1" != test/image:1 ]; do shift; done
shift
exec "$@"
)"));
    EXPECT_EQ(chmod(path.c_str(), 0755), 0);
    EXPECT_EQ(unshare(CLONE_NEWNS), 0) << strerror(errno);
    EXPECT_EQ(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0) << strerror(errno);
    EXPECT_EQ(mount(folder_.path().c_str(), kPlace, nullptr, MS_BIND, nullptr), 0)
        << strerror(errno);
  }
  ~FakePodman() { (void)umount2(kPlace, MNT_DETACH); }

  void SetDigest(const std::string& digest) { other_.Write("digest", digest + "\n"); }

 private:
  static constexpr char kPlace[] = "/usr/local/bin";

  TempDir folder_;
  TempDir other_;
  const std::string digest_ = other_.File("digest");
};

TEST_F(Isolation, TheDigestOfTheImageIsRecordedAndComparedForAClone) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, who can give this test a podman of its own";
  FakePodman podman;
  Start();
  const std::string first = absl::StrCat("sha256:", std::string(64, '1'));
  const std::string second = absl::StrCat("sha256:", std::string(64, '2'));
  podman.SetDigest(first);
  // The program ends when all is noted, so nothing depends on how long that takes.
  const ProcessResult original =
      yard_->Cli({"run", "-q", "--set", "program.environment.container=test/image:1", "--",
                  "/usr/bin/python3", "-c", R"(
import os, time
noted = os.path.join(os.path.dirname(os.environ["TRAINYARD_RUN_DIR"]), "environment.json")
while not os.path.exists(noted):
    time.sleep(0.02)
)"});
  EXPECT_EQ(original.exit_code, 0) << original.out << original.err;
  EXPECT_THAT(yard_->Cli({"show", "1", "--environment"}).out, HasSubstr(first));
  EXPECT_EQ(yard_->Cli({"clone", "1", "--follow", "-y"}).exit_code, 0);
  // On a machine that is too busy, Python may not have told its version once.
  const ProcessResult same = yard_->Cli({"show", "2", "--environment"});
  EXPECT_THAT(same.out, AllOf(HasSubstr(first), Not(HasSubstr(first + "  sha256")))) << same.err;
  podman.SetDigest(second);
  EXPECT_EQ(yard_->Cli({"clone", "1", "--follow", "-y"}).exit_code, 0);
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"show", "3", "--environment"}, {"diff", "1", "3"}}) {
    const ProcessResult other = yard_->Cli(args);
    EXPECT_THAT(other.out, ::testing::ContainsRegex(absl::StrCat("image +", first, " +", second)))
        << other.err;
  }
}

}  // namespace
}  // namespace trainyard::testing
