// Lets the gatherers look at machines that are made up: folders that look like /proc, /sys and
// /etc, and programs that say what a test wants.
#include "client/doctor/gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/files.h"
#include "common/base/system_accounts.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GatherTest : public ::testing::Test {
 protected:
  void Put(const std::string& path, const std::string& content, int mode = 0644) {
    const std::string whole = root_ + path;
    ASSERT_TRUE(MakeDirectories(whole.substr(0, whole.rfind('/'))).ok());
    ASSERT_TRUE(WriteFileAtomically(whole, content, mode).ok());
    ASSERT_EQ(chmod(whole.c_str(), static_cast<mode_t>(mode)), 0);
  }
  void PutProgram(const std::string& path) { Put(path, "", 0755); }
  // From now on, a command line that has this text prints that.
  void Answer(const std::string& part, const daemons::ChildResult& result) {
    answers_[part] = result;
  }
  RunProgram run() {
    return [this](const std::vector<std::string>& args) -> absl::StatusOr<daemons::ChildResult> {
      const std::string line = absl::StrJoin(args, " ");
      for (const auto& [part, answer] : answers_) {
        if (absl::StrContains(line, part)) return answer;
      }
      return absl::DeadlineExceededError(absl::StrCat("nobody answers: ", line));
    };
  }

  const testing::TempDir folder_;
  const std::string root_ = folder_.path();
  std::map<std::string, daemons::ChildResult> answers_;
};

TEST_F(GatherTest, ProgramsTellTheirVersions) {
  PutProgram("/bin/trainyard-server");
  PutProgram("/libexec/trainyard/trainyard-supervisor");
  PutProgram("/libexec/trainyard/trainyard-trainer");
  Answer("trainyard-server --version", {0, "trainyard-server 1.0+aa\n", ""});
  Answer("trainyard-trainer --version", {127, "", "\nlibdnnl.so.2: cannot open\nmore\n"});
  std::map<std::string, ProgramFacts> programs;
  for (const ProgramFacts& program : FindTrainyardPrograms(root_ + "/bin", run())) {
    programs[program.name] = program;
  }
  EXPECT_EQ(programs["trainyard-server"].version, "1.0+aa");
  EXPECT_EQ(programs["trainyard-worker"].path, "");
  EXPECT_EQ(programs["trainyard-trainer"].error, "libdnnl.so.2: cannot open");
  // This one is not asked, since it has nothing to say.
  EXPECT_THAT(programs["trainyard-supervisor"].path, HasSubstr("libexec/trainyard"));
  EXPECT_EQ(programs["trainyard-supervisor"].error, "");
}

TEST_F(GatherTest, FilesHaveOwnersAndModes) {
  Put("/secret", "x", 0640);
  const FileFacts file = LookAtFile(root_ + "/secret");
  EXPECT_TRUE(file.exists);
  EXPECT_EQ(file.mode, 0640u);
  EXPECT_EQ(file.owner_name, UserName(geteuid()));
  EXPECT_FALSE(LookAtFile(root_ + "/nothing").exists);
}

TEST_F(GatherTest, SettingsAreReadByTheirProgram) {
  Put("/etc/trainyard/worker.yaml", "dataset_dir: /srv/data\nrun_as: owner\nlabel: [a=b]\n");
  const std::string path = root_ + "/etc/trainyard/worker.yaml";
  EXPECT_EQ(SettingOf(path, "dataset_dir"), "/srv/data");
  Put("/etc/trainyard/dashes.yaml", "state-dir: /srv/state\n");
  EXPECT_EQ(SettingOf(root_ + "/etc/trainyard/dashes.yaml", "state_dir"), "/srv/state");
  EXPECT_EQ(SettingOf(path, "label"), "");
  EXPECT_EQ(SettingOf(path, "address"), "");
  EXPECT_EQ(SettingOf(root_ + "/nothing", "address"), "");
  Answer(absl::StrCat("/p/worker --config ", path, " --help"),
         {2, "", "worker.yaml:1:1: no flag\n"});
  EXPECT_EQ(LookAtSettings(path, "/p/worker", run()).mistake, "worker.yaml:1:1: no flag");
  Answer(absl::StrCat("/p/worker --config ", path, " --help"), {0, "usage\n", ""});
  EXPECT_EQ(LookAtSettings(path, "/p/worker", run()).mistake, "");
}

TEST_F(GatherTest, UnitsAreAskedForOnlyIfSystemdRuns) {
  PutProgram("/usr/bin/systemctl");
  const auto none = LookAtUnits(root_, run());
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_THAT(*none, IsEmpty());
  ASSERT_TRUE(MakeDirectories(root_ + "/run/systemd/system").ok());
  EXPECT_FALSE(LookAtUnits(root_, run()).ok());
  Answer("systemctl show",
         {0,
          "Id=trainyard-server.service\nLoadState=loaded\nActiveState=failed\n"
          "UnitFileState=enabled\n\nId=trainyard-jobs.service\nLoadState=not-found\n"
          "ActiveState=inactive\nUnitFileState=\n",
          ""});
  const auto units = LookAtUnits(root_, run());
  ASSERT_TRUE(units.ok()) << units.status();
  ASSERT_EQ(units->size(), 2u);
  EXPECT_EQ((*units)[0].name, "trainyard-server.service");
  EXPECT_EQ((*units)[0].active, "failed");
  EXPECT_EQ((*units)[1].load, "not-found");
}

TEST_F(GatherTest, TheGroupOfJobsIsFound) {
  EXPECT_FALSE(LookAtCgroups(root_).has_v2);
  Put("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
  Put("/proc/self/cgroup", "0::/user.slice/user-1000.slice\n");
  EXPECT_TRUE(LookAtCgroups(root_).has_v2);
  EXPECT_EQ(LookAtCgroups(root_).group, "");
  Put("/lib/systemd/system/trainyard-jobs.service", "");
  Put("/sys/fs/cgroup/system.slice/trainyard-jobs.service/cgroup.controllers", "cpu memory pids\n");
  const CgroupFacts cgroup = LookAtCgroups(root_);
  EXPECT_TRUE(cgroup.has_jobs_unit);
  EXPECT_EQ(cgroup.group, "/system.slice/trainyard-jobs.service");
  EXPECT_THAT(cgroup.controllers, ElementsAre("cpu", "memory", "pids"));
}

TEST_F(GatherTest, ASandboxIsMade) {
  EXPECT_EQ(LookAtSandboxes(root_, /*runs_as_owners=*/false, run()).bubblewrap, "");
  PutProgram("/usr/bin/bwrap");
  PutProgram("/usr/bin/ch-run");
  Answer("bwrap --ro-bind", {1, "", "bwrap: No permissions to create new namespace\n"});
  const SandboxFacts refused = LookAtSandboxes(root_, /*runs_as_owners=*/false, run());
  EXPECT_EQ(refused.error, "bwrap: No permissions to create new namespace");
  EXPECT_EQ(refused.runtime, "charliecloud");
  Answer("bwrap --ro-bind", {0, "", ""});
  EXPECT_EQ(LookAtSandboxes(root_, /*runs_as_owners=*/false, run()).error, "");
  PutProgram("/usr/bin/podman");
  EXPECT_EQ(LookAtSandboxes(root_, /*runs_as_owners=*/false, run()).runtime, "podman");
  EXPECT_EQ(LookAtSandboxes(root_, /*runs_as_owners=*/true, run()).runtime, "charliecloud");
}

TEST_F(GatherTest, MemoryAndLimitsComeFromTheKernel) {
  Put("/proc/meminfo", "MemTotal:       2048 kB\nMemAvailable:   1024 kB\nSwapTotal: 0 kB\n");
  Put("/proc/self/cgroup", "0::/a\n");
  Put("/sys/fs/cgroup/cgroup.controllers", "memory\n");
  Put("/sys/fs/cgroup/a/memory.max", "1048576\n");
  const MemoryFacts memory = LookAtMemory(root_);
  EXPECT_EQ(memory.total_bytes, 2 << 20);
  EXPECT_EQ(memory.available_bytes, 1 << 20);
  EXPECT_EQ(memory.allowed_bytes, 1 << 20);
  Put("/proc/sys/fs/inotify/max_user_instances", "128\n");
  Put("/proc/sys/fs/inotify/max_user_watches", "65536\n");
  const LimitFacts limits = LookAtLimits(root_);
  EXPECT_EQ(limits.watchers, 128);
  EXPECT_EQ(limits.watches, 65536);
  EXPECT_EQ(limits.shared_memory_bytes, 0);
  EXPECT_GT(limits.open_files, 0);
}

TEST_F(GatherTest, DisksAreMeasuredAndLeftAsTheyWere) {
  const DiskFacts disk = LookAtDisk(root_ + "/not/there/yet", absl::Milliseconds(20));
  EXPECT_EQ(disk.error, "");
  EXPECT_GT(disk.free_bytes, 0);
  EXPECT_GE(disk.size_bytes, disk.free_bytes);
  if (disk.bytes_per_second.has_value()) {
    EXPECT_GT(*disk.bytes_per_second, 0);
    EXPECT_GT(*disk.commit, absl::ZeroDuration());
  }
  EXPECT_THAT(ListDirectory(root_).value(), IsEmpty());
  EXPECT_FALSE(LookAtDisk(root_, absl::ZeroDuration()).bytes_per_second.has_value());
}

TEST_F(GatherTest, CardsAndDriversComeFromTheKernel) {
  Put("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
  Put("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
  // The sound of a card of NVIDIA is no GPU, and others make cards too.
  Put("/sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n");
  Put("/sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n");
  Put("/sys/bus/pci/devices/0000:02:00.0/vendor", "0x1002\n");
  Put("/sys/bus/pci/devices/0000:02:00.0/class", "0x030000\n");
  GpuFacts gpus = LookAtGpus(root_, run());
  EXPECT_THAT(gpus.cards, ElementsAre("0000:01:00.0"));
  EXPECT_EQ(gpus.driver, "");

  Put("/proc/driver/nvidia/version",
      "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
      "GCC version:  gcc version 12.2.0\n");
  Put("/dev/nvidia0", "", 0666);
  Put("/dev/nvidiactl", "", 0660);
  Put("/dev/nvidia-modeset", "");
  gpus = LookAtGpus(root_, run());
  EXPECT_EQ(gpus.driver, "580.65.06");
  ASSERT_EQ(gpus.devices.size(), 2u);
  EXPECT_EQ(gpus.devices[1].mode, 0660u);
  EXPECT_EQ(gpus.smi_error, "it is not installed");
}

TEST_F(GatherTest, TheDriverTellsWhoUsesGpus) {
  Put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15\n");
  PutProgram("/usr/bin/nvidia-smi");
  Answer("--query-gpu", {0,
                         "GPU-aa, 0, NVIDIA H200, 143771, Enabled\n"
                         "GPU-bb, 1, NVIDIA H200, 143771, Disabled\n",
                         ""});
  Answer("--query-compute-apps",
         {0, "GPU-aa, 20, 900, /usr/bin/python3\nGPU-bb, 30, [N/A], python3\n", ""});
  // 20 was started by a supervisor, and 30 by a shell.
  Put("/proc/20/stat", "20 (python3 (x) y) S 10 20 20\n");
  Put("/proc/10/stat", "10 (trainyard-super) S 1 10 10\n");
  Put("/proc/30/stat", "30 (python3) S 1 30 30\n");
  const GpuFacts gpus = LookAtGpus(root_, run());
  EXPECT_THAT(gpus.gpus,
              ElementsAre("GPU 0, NVIDIA H200, 143771 MiB", "GPU 1, NVIDIA H200, 143771 MiB"));
  EXPECT_THAT(gpus.without_persistence, ElementsAre("GPU 1"));
  ASSERT_EQ(gpus.processes.size(), 2u);
  EXPECT_TRUE(gpus.processes[0].is_of_trainyard);
  EXPECT_EQ(gpus.processes[0].memory_mib, 900);
  EXPECT_FALSE(gpus.processes[1].is_of_trainyard);
  EXPECT_EQ(gpus.processes[1].gpu, "GPU 1");
  Answer("--query-gpu", {9, "NVIDIA-SMI has failed\n", ""});
  EXPECT_EQ(LookAtGpus(root_, run()).smi_error, "NVIDIA-SMI has failed");
}

TEST_F(GatherTest, LibrariesThatAreMissingAreTold) {
  EXPECT_EQ(WhyNotLoaded("libc.so.6"), "");
  EXPECT_THAT(WhyNotLoaded("libnowhere.so.1"), HasSubstr("libnowhere.so.1"));
}

TEST_F(GatherTest, TheNetworkHasALoopback) {
  const NetworkFacts network = LookAtNetwork("10.0.0.0/8");
  EXPECT_EQ(network.address_flag, "10.0.0.0/8");
  EXPECT_FALSE(network.hostname.empty());
  EXPECT_EQ(network.hostname_addresses.empty(), !network.hostname_error.empty());
}

TEST_F(GatherTest, DataSetsAreListedByTheTrainer) {
  const std::string data = root_ + "/data";
  EXPECT_FALSE(LookAtDatasets(data, "x", true, "/p/trainer", run()).exists);
  Put("/data/mnist/train", "");
  Put("/data/closed.tar", "", 0600);
  ASSERT_EQ(chmod((data + "/mnist").c_str(), 0755), 0);
  Answer("/p/trainer --data ls --dataset_dir",
         {0,
          R"({"splits": [{"dataset": "mnist", "split": "train", "errors": []},
                         {"dataset": "mnist", "split": "test", "errors": ["it is missing"]},
                         {"dataset": "images", "path": "pets", "split": "train"}]})",
          ""});
  const DatasetFacts datasets = LookAtDatasets(data, "x", true, "/p/trainer", run());
  EXPECT_THAT(datasets.names, ElementsAre("images:pets", "mnist"));
  EXPECT_THAT(datasets.errors, ElementsAre("mnist test: it is missing"));
  // The folder of the test is closed as well.
  EXPECT_THAT(datasets.closed, ElementsAre(root_, data + "/closed.tar"));
  EXPECT_THAT(LookAtDatasets(data, "x", false, "/p/trainer", run()).closed, IsEmpty());
  EXPECT_EQ(LookAtDatasets(data, "x", false, "", run()).error, "trainyard-trainer is missing");
  Answer("/p/trainer --data ls --dataset_dir", {1, "", "no permission\n"});
  EXPECT_EQ(LookAtDatasets(data, "x", false, "/p/trainer", run()).error, "no permission");
}

}  // namespace
}  // namespace trainyard::doctor
