// Tests how strictly programs are kept apart from their host, with the real programs. What needs
// bubblewrap or a container runtime is skipped where it is missing; control groups are tested by
// `make isolation`.
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

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
}

}  // namespace
}  // namespace trainyard::testing
