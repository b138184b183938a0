// Shows the judge machines that have one thing wrong each.
#include "client/doctor/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::doctor {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kGibibyte = int64_t{1} << 30;
constexpr char kVersion[] = "1.0+aa";

auto Is(Level level, const std::string& message, const std::string& advice = "") {
  return AllOf(Field(&Finding::level, level), Field(&Finding::message, HasSubstr(message)),
               Field(&Finding::advice, HasSubstr(advice)));
}

const auto kAllFine = Each(Field(&Finding::level, Level::kOk));

std::vector<ProgramFacts> AllPrograms() {
  return {{"trainyard-server", "/usr/bin/trainyard-server", kVersion, ""},
          {"trainyard-worker", "/usr/bin/trainyard-worker", kVersion, ""},
          {"trainyard-trainer", "/usr/libexec/trainyard/trainyard-trainer", kVersion, ""},
          {"trainyard-supervisor", "/usr/libexec/trainyard/trainyard-supervisor", "", ""},
          {"trainyard-program", "/usr/libexec/trainyard/trainyard-program", "", ""},
          {"trainyard-enter", "/usr/libexec/trainyard/trainyard-enter", "", ""}};
}

TEST(JudgePrograms, AWorkerNeedsItsHelpersAndAllNeedOneVersion) {
  EXPECT_THAT(JudgePrograms(AllPrograms(), kVersion), kAllFine);

  auto without = AllPrograms();
  without[3].path = "";
  EXPECT_THAT(JudgePrograms(without, kVersion),
              Contains(Is(Level::kProblem, "without trainyard-supervisor", "trainyard-worker")));

  auto older = AllPrograms();
  older[2].version = "0.9+bb";
  EXPECT_THAT(JudgePrograms(older, kVersion),
              Contains(Is(Level::kProblem,
                          "trainyard-trainer has the version 0.9+bb, and this client 1.0+aa.")));

  auto broken = AllPrograms();
  broken[2].version = "";
  broken[2].error = "libdnnl.so.2: cannot open shared object file";
  EXPECT_THAT(JudgePrograms(broken, kVersion),
              Contains(Is(Level::kProblem, "trainyard-trainer does not start: libdnnl.so.2")));
}

TEST(JudgePrograms, AClientAloneIsFine) {
  EXPECT_THAT(JudgePrograms({{"trainyard-server", "", "", ""},
                             {"trainyard-worker", "", "", ""},
                             {"trainyard-supervisor", "", "", ""}},
                            kVersion),
              kAllFine);
}

FileFacts FileOf(const std::string& owner, uint32_t mode) {
  return {.path = "/x", .exists = true, .can_read = true, .owner_name = owner, .mode = mode};
}

TEST(JudgeFiles, StateBelongsToOneAlone) {
  EXPECT_EQ(JudgeStateFolder(FileOf("anna", 0700), "anna").level, Level::kOk);
  EXPECT_EQ(JudgeStateFolder(FileOf("root", 0711), "root").level, Level::kOk);
  EXPECT_EQ(JudgeStateFolder({.path = "/x"}, "anna").level, Level::kOk);
  EXPECT_THAT(JudgeStateFolder(FileOf("root", 0700), "trainyard"),
              Is(Level::kProblem, "belongs to root", "chown -R trainyard /x"));
  EXPECT_THAT(JudgeStateFolder(FileOf("anna", 0770), "anna"),
              Is(Level::kProblem, "mode 0770", "chmod go-w /x"));
}

TEST(JudgeFiles, SecretsAreClosed) {
  EXPECT_EQ(JudgeSecretFile(FileOf("anna", 0600), "anna").level, Level::kOk);
  EXPECT_THAT(JudgeSecretFile(FileOf("anna", 0644), "anna"),
              Is(Level::kProblem, "mode 0644", "chmod 600 /x"));
  EXPECT_EQ(JudgeSecretFile(FileOf("bert", 0600), "anna").level, Level::kProblem);
}

TEST(JudgeFiles, SettingsAreReadByTheirProgramAndWrittenByRoot) {
  const SettingsFacts fine = {FileOf("root", 0644), "/usr/bin/trainyard-server", ""};
  EXPECT_THAT(JudgeSettings(fine), kAllFine);
  SettingsFacts wrong = fine;
  wrong.mistake = "/x:3:1: there is no flag 'listn'; did you mean 'listen'?";
  EXPECT_THAT(JudgeSettings(wrong),
              ElementsAre(Is(Level::kProblem, "/x:3:1: there is no flag", "--help")));
  wrong.file.mode = 0664;
  EXPECT_THAT(JudgeSettings(wrong), ElementsAre(Is(Level::kProblem, "mode 0664", "chmod go-w /x"),
                                                Is(Level::kProblem, "/x:3:1: there is no flag")));
  EXPECT_THAT(JudgeSettings({FileOf("anna", 0644), "/p", ""}),
              ElementsAre(Is(Level::kProblem, "belongs to anna")));
  EXPECT_THAT(JudgeSettings({FileOf("root", 0644), "", ""}),
              ElementsAre(Is(Level::kWarning, "the program that reads it is not")));
  SettingsFacts closed = fine;
  closed.file.can_read = false;
  EXPECT_THAT(JudgeSettings(closed), ElementsAre(Is(Level::kWarning, "cannot read", "as root")));
  EXPECT_THAT(JudgeGroup("admin_group", "trainyard-admin", false),
              Is(Level::kProblem, "no group trainyard-admin", "groupadd"));
}

TEST(JudgeFiles, SocketsAreListenedTo) {
  SocketFacts socket{"the server of this machine", FileOf("trainyard", 0666), "", false};
  EXPECT_EQ(JudgeSocket(socket).level, Level::kOk);
  socket.error = "connection refused";
  EXPECT_THAT(JudgeSocket(socket), Is(Level::kWarning, "nobody listens"));
  socket.is_forbidden = true;
  EXPECT_THAT(JudgeSocket(socket), Is(Level::kWarning, "You may not connect", "--shared"));
  EXPECT_EQ(JudgeUp("/s", true, true).level, Level::kOk);
  EXPECT_EQ(JudgeUp("/s", false, false).level, Level::kOk);
  EXPECT_THAT(JudgeUp("/s", true, false), Is(Level::kWarning, "not the worker", "/s/worker.log"));
}

TEST(JudgeUnits, OnlyThoseThatAreInstalledCount) {
  EXPECT_THAT(JudgeUnits({{"trainyard-server.service", "not-found", "inactive", ""}}), IsEmpty());
  EXPECT_THAT(JudgeUnits({{"trainyard-server.service", "loaded", "active", "enabled"},
                          {"trainyard-jobs.service", "loaded", "active", "static"}}),
              kAllFine);
  EXPECT_THAT(
      JudgeUnits({{"trainyard-server.service", "loaded", "failed", "enabled"},
                  {"trainyard-worker.service", "loaded", "active", "disabled"},
                  {"trainyard-jobs.service", "loaded", "inactive", "static"},
                  {"trainyard-backup.timer", "loaded", "inactive", "disabled"}}),
      ElementsAre(Is(Level::kProblem, "has failed", "journalctl -u trainyard-server.service"),
                  Is(Level::kWarning, "does not start when the machine does", "systemctl enable"),
                  Is(Level::kWarning, "is inactive", "systemctl start trainyard-jobs.service"),
                  Is(Level::kWarning, "is off", "systemctl enable --now trainyard-backup.timer")));
}

TEST(JudgeSystem, ControlGroupsBoundMemoryAndProcesses) {
  CgroupFacts cgroup{true,
                     "/system.slice/trainyard-jobs.service",
                     {"cpuset", "cpu", "io", "memory", "pids"},
                     true};
  EXPECT_EQ(JudgeCgroup(cgroup).level, Level::kOk);
  cgroup.controllers = {"cpu", "pids"};
  EXPECT_THAT(JudgeCgroup(cgroup),
              Is(Level::kWarning, "lacks memory, cpuset, so a worker does not use it"));
  cgroup.controllers = {"memory", "pids", "cpuset"};
  EXPECT_THAT(JudgeCgroup(cgroup), Is(Level::kWarning, "lacks cpu, so jobs are not kept"));
  cgroup.group = "";
  EXPECT_THAT(JudgeCgroup(cgroup), Is(Level::kWarning, "", "systemctl start trainyard-jobs"));
  cgroup.has_jobs_unit = false;
  EXPECT_THAT(JudgeCgroup(cgroup), Is(Level::kWarning, "", "Delegate=yes trainyard up"));
  EXPECT_THAT(JudgeCgroup({}), Is(Level::kWarning, "", "unified_cgroup_hierarchy"));
}

TEST(JudgeSystem, SandboxesAreTried) {
  EXPECT_THAT(JudgeSandbox({"/usr/bin/bwrap", "", "podman"}), Is(Level::kOk, "with podman"));
  EXPECT_THAT(JudgeSandbox({"", "", ""}), Is(Level::kWarning, "bwrap is missing", "bubblewrap"));
  EXPECT_THAT(JudgeSandbox({"/usr/bin/bwrap", "No permissions to create new namespace", ""}),
              Is(Level::kWarning, "No permissions", "unprivileged_userns_clone"));
}

TEST(JudgeSystem, LimitsThatAreTooSmallAreTold) {
  const LimitFacts fine{65536, 65536, 128, 4 * kGibibyte};
  EXPECT_THAT(JudgeLimits(fine), kAllFine);
  EXPECT_THAT(JudgeLimits({1024, 100, 8, 64 << 20}),
              ElementsAre(Is(Level::kWarning, "1024 files", "LimitNOFILE"),
                          Is(Level::kWarning, "100 folders with 8", "max_user_instances"),
                          Is(Level::kWarning, "64 MiB", "--shm-size")));
  EXPECT_THAT(JudgeLimits({65536, 65536, 128, 0}),
              ElementsAre(Is(Level::kWarning, "There is no /dev/shm")));
}

TEST(JudgeSystem, MemoryIsThatWhichTheGroupAllows) {
  EXPECT_THAT(JudgeMemory({32 * kGibibyte, 20 * kGibibyte, kGibibyte, 32 * kGibibyte}),
              Is(Level::kOk, "20 GiB of 32 GiB are free, and 1.0 GiB of swap."));
  EXPECT_EQ(JudgeMemory({32 * kGibibyte, kGibibyte / 2, 0, 32 * kGibibyte}).level, Level::kWarning);
  EXPECT_THAT(JudgeMemory({32 * kGibibyte, 20 * kGibibyte, 0, kGibibyte / 2}),
              Is(Level::kWarning, "a control group allows 512 MiB"));
}

TEST(JudgeSystem, TheClockIsKeptRight) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  EXPECT_THAT(JudgeClock({now, true, true, absl::Milliseconds(3)}), Is(Level::kOk, "3ms"));
  EXPECT_THAT(JudgeClock({now, true, false, absl::Seconds(16)}),
              Is(Level::kWarning, "nothing keeps the clock right", "timedatectl set-ntp true"));
  EXPECT_EQ(JudgeClock({now, true, true, absl::Seconds(16)}).level, Level::kWarning);
  EXPECT_EQ(JudgeClock({now, false, false, {}}).level, Level::kOk);
  EXPECT_THAT(JudgeClock({absl::UnixEpoch(), true, true, {}}), Is(Level::kProblem, "1970"));
}

DiskFacts GoodDisk() {
  DiskFacts disk;
  disk.folder = "/s";
  disk.file_system = 0xef53;
  disk.free_bytes = 500 * kGibibyte;
  disk.size_bytes = 1000 * kGibibyte;
  disk.may_write = true;
  disk.bytes_per_second = 500e6;
  disk.commit = absl::Milliseconds(1);
  return disk;
}

TEST(JudgeDisks, StateIsOnADiskOfTheHost) {
  EXPECT_THAT(JudgeFileSystem(GoodDisk()), Is(Level::kOk, "ext4"));
  for (const auto& [number, name] :
       std::vector<std::pair<uint64_t, std::string>>{{0x6969, "NFS"}, {0x0bd00bd0, "Lustre"}}) {
    DiskFacts disk = GoodDisk();
    disk.file_system = number;
    EXPECT_THAT(JudgeFileSystem(disk), Is(Level::kProblem, name, "--state_dir"));
  }
  DiskFacts memory = GoodDisk();
  memory.file_system = 0x01021994;
  EXPECT_THAT(JudgeFileSystem(memory), Is(Level::kWarning, "gone when the machine restarts"));
  DiskFacts fuse = GoodDisk();
  fuse.file_system = 0x65735546;
  EXPECT_EQ(JudgeFileSystem(fuse).level, Level::kWarning);
}

TEST(JudgeDisks, SpaceIsLeft) {
  EXPECT_EQ(JudgeSpace(GoodDisk()).level, Level::kOk);
  DiskFacts disk = GoodDisk();
  disk.free_bytes = 150 * kGibibyte;
  EXPECT_THAT(JudgeSpace(disk), Is(Level::kWarning, "150 GiB of 1000 GiB", "--keep_jobs"));
  disk.free_bytes = kGibibyte / 2;
  EXPECT_EQ(JudgeSpace(disk).level, Level::kProblem);
  disk = GoodDisk();
  disk.free_files = 0.01;
  EXPECT_THAT(JudgeSpace(disk), Is(Level::kWarning, "few inodes left (1.0 %)"));
}

TEST(JudgeDisks, WritesAreFast) {
  EXPECT_THAT(JudgeSpeed(GoodDisk()), ElementsAre(Is(Level::kOk, "477 MiB/s")));
  DiskFacts disk = GoodDisk();
  disk.bytes_per_second = 5e6;
  EXPECT_THAT(JudgeSpeed(disk), ElementsAre(Is(Level::kWarning, "slow")));
  disk = GoodDisk();
  disk.commit = absl::Milliseconds(80);
  EXPECT_THAT(JudgeSpeed(disk), ElementsAre(Is(Level::kWarning, "a commit takes 80.0 ms")));
  disk.error = "read-only file system";
  EXPECT_THAT(JudgeSpeed(disk), ElementsAre(Is(Level::kProblem, "read-only")));
  // Nothing is said of the speed to those who may not write.
  disk = GoodDisk();
  disk.bytes_per_second.reset();
  EXPECT_THAT(JudgeSpeed(disk), IsEmpty());
}

GpuFacts GoodGpus() {
  GpuFacts gpus;
  gpus.cards = {"0000:01:00.0"};
  gpus.driver = "580.65.06";
  gpus.devices = {{.path = "/dev/nvidia0", .exists = true, .mode = 0666}};
  gpus.gpus = {"GPU 0, NVIDIA H200, 143771 MiB"};
  gpus.processes = {{"GPU 0", 7, "trainyard-trainer-cuda", 900, true}};
  gpus.trainer = {"trainyard-trainer-cuda", "/p/trainyard-trainer-cuda", kVersion, ""};
  return gpus;
}

TEST(JudgeGpus, NoGpuIsNoProblem) {
  EXPECT_THAT(JudgeGpus({}), ElementsAre(Is(Level::kOk, "no GPU of NVIDIA")));
  EXPECT_THAT(JudgeGpus(GoodGpus()), kAllFine);
}

TEST(JudgeGpus, ACardNeedsItsDriver) {
  GpuFacts gpus;
  gpus.cards = {"0000:01:00.0"};
  EXPECT_THAT(JudgeGpus(gpus), ElementsAre(Is(Level::kProblem, "0000:01:00.0", "driver")));
  gpus = GoodGpus();
  gpus.driver = "535.183.01";
  EXPECT_THAT(JudgeGpus(gpus), Contains(Is(Level::kProblem, "too old for CUDA 13", "580")));
  gpus = GoodGpus();
  gpus.nvml_error = "libnvidia-ml.so.1: cannot open";
  EXPECT_THAT(JudgeGpus(gpus), Contains(Is(Level::kProblem, "libnvidia-ml.so.1", "--nvml")));
  gpus = GoodGpus();
  gpus.devices.clear();
  EXPECT_THAT(JudgeGpus(gpus), Contains(Is(Level::kProblem, "no /dev/nvidia0")));
  gpus = GoodGpus();
  gpus.gpus.clear();
  EXPECT_THAT(JudgeGpus(gpus), Contains(Is(Level::kProblem, "shows no GPU")));
}

TEST(JudgeGpus, TheTrainerNeedsItsLibraries) {
  GpuFacts gpus = GoodGpus();
  gpus.trainer.error = "error while loading shared libraries: libcudnn.so.9: cannot open";
  EXPECT_THAT(JudgeGpus(gpus), Contains(Is(Level::kProblem, "libcudnn.so.9", "libcudnn9")));
  gpus.trainer.error = "error while loading shared libraries: libnccl.so.2: cannot open";
  EXPECT_THAT(JudgeGpus(gpus), Contains(Is(Level::kProblem, "libnccl.so.2", "(libnccl2)")));
  gpus.trainer.path = "";
  EXPECT_THAT(JudgeGpus(gpus), Contains(Is(Level::kProblem, "missing", "trainyard-worker-cuda")));
}

TEST(JudgeGpus, OthersWhoUseAGpuAreNamed) {
  GpuFacts gpus = GoodGpus();
  gpus.processes.push_back({"GPU 0", 99, "python3", 2048, false});
  gpus.without_persistence = {"GPU 0"};
  gpus.devices[0].mode = 0660;
  const Findings findings = JudgeGpus(gpus);
  EXPECT_THAT(findings, Contains(Is(Level::kWarning, "The process 99 (python3) uses 2048 MiB")));
  EXPECT_THAT(findings, Contains(Is(Level::kWarning, "Persistence mode", "nvidia-smi -pm 1")));
  EXPECT_THAT(findings, Contains(Is(Level::kWarning, "Not everybody may use /dev/nvidia0")));
  EXPECT_THAT(findings, Not(Contains(Is(Level::kWarning, "The process 7"))));
}

TEST(JudgeNetwork, AGuessAmongInterfacesIsSaid) {
  NetworkFacts network;
  network.hostname = "lab";
  network.hostname_addresses = {"10.1.0.2"};
  const InterfaceAddress lo{"lo", "127.0.0.1", true, true, false};
  const InterfaceAddress eth{"eth0", "10.1.0.2", false, true, false};
  const InterfaceAddress ib{"ib0", "10.2.0.2", false, true, false};
  network.interfaces = {lo};
  EXPECT_THAT(JudgeNetwork(network), Contains(Is(Level::kOk, "Only the loopback is up")));
  network.interfaces = {lo, eth};
  EXPECT_THAT(JudgeNetwork(network), Contains(Is(Level::kOk, "eth0, 10.1.0.2.")));
  network.interfaces = {lo, eth, ib};
  EXPECT_THAT(JudgeNetwork(network),
              Contains(Is(Level::kWarning, "a guess; there are also ib0 10.2.0.2", "--address")));
  network.interfaces[1].has_default_route = true;
  EXPECT_THAT(JudgeNetwork(network), kAllFine);
  network.address_flag = "10.2.0.0/16";
  EXPECT_THAT(JudgeNetwork(network), Contains(Is(Level::kOk, "ib0, 10.2.0.2, as the worker's")));
  network.address_flag = "10.9.0.0/16";
  EXPECT_THAT(JudgeNetwork(network), Contains(Is(Level::kProblem, "does not fit", "address")));
  network.interfaces.clear();
  network.address_flag = "";
  EXPECT_THAT(JudgeNetwork(network), Contains(Is(Level::kProblem, "not even the loopback")));
}

TEST(JudgeNetwork, TheNameOfTheHostLeadsSomewhere) {
  NetworkFacts network;
  network.interfaces = {{"lo", "127.0.0.1", true, true, false}};
  network.hostname = "lab";
  network.hostname_error = "Name or service not known";
  EXPECT_THAT(JudgeNetwork(network),
              Contains(Is(Level::kWarning, "lab, leads to no address", "/etc/hosts")));
}

TEST(JudgeDatasets, TheFolderIsThereAndOpen) {
  EXPECT_THAT(JudgeDatasets({}), ElementsAre(Is(Level::kOk, "glyphs")));
  DatasetFacts datasets;
  datasets.folder = "/srv/data";
  datasets.named_by = "/etc/trainyard/worker.yaml";
  datasets.is_for_all = true;
  EXPECT_THAT(JudgeDatasets(datasets),
              ElementsAre(Is(Level::kProblem,
                             "/srv/data as --dataset_dir, but there is no such folder", "Mount")));
  datasets.exists = true;
  EXPECT_THAT(JudgeDatasets(datasets), ElementsAre(Is(Level::kWarning, "no data sets are there")));
  datasets.names = {"cifar10", "images:pets"};
  EXPECT_THAT(JudgeDatasets(datasets), ElementsAre(Is(Level::kOk, "cifar10, images:pets")));
  datasets.closed = {"/srv/data/secret"};
  datasets.errors = {"mnist train: a file is missing"};
  EXPECT_THAT(
      JudgeDatasets(datasets),
      ElementsAre(Is(Level::kProblem, "/srv/data/secret", "chmod -R o+rX /srv/data"),
                  Is(Level::kWarning, "mnist train", "data verify"), Is(Level::kOk, "cifar10")));
  datasets.error = "it took too long";
  EXPECT_THAT(JudgeDatasets(datasets), Contains(Is(Level::kWarning, "it took too long")));
}

v1::Worker ActiveWorker(absl::Time seen) {
  v1::Worker worker;
  worker.set_name("workers/alpha");
  worker.set_state(v1::WORKER_STATE_ACTIVE);
  worker.set_scheduling(v1::WORKER_SCHEDULING_ELIGIBLE);
  worker.set_version(kVersion);
  worker.mutable_last_seen_time()->set_seconds(absl::ToUnixSeconds(seen));
  v1::Device& device = *worker.add_devices();
  device.set_name("cpu-0");
  device.set_health(v1::DEVICE_HEALTH_OK);
  return worker;
}

ServerFacts GoodServer() {
  ServerFacts server;
  server.address = "tls://lab:7070";
  server.reason = "--server names it";
  server.is_named = true;
  server.who.set_user("anna");
  server.who.set_role(v1::ROLE_SUBMITTER);
  server.who.set_server_version(kVersion);
  server.now = absl::FromUnixSeconds(1'800'000'000);
  server.workers = {ActiveWorker(server.now - absl::Seconds(3))};
  return server;
}

TEST(JudgeServer, AServerThatIsNamedHasToAnswer) {
  EXPECT_THAT(JudgeServer(GoodServer(), kVersion), kAllFine);
  ServerFacts server;
  server.error = absl::UnavailableError("no server answers at unix:/x");
  EXPECT_THAT(JudgeServer(server, kVersion),
              ElementsAre(Is(Level::kWarning, "No server runs here", "trainyard up")));
  server.is_named = true;
  EXPECT_THAT(JudgeServer(server, kVersion),
              ElementsAre(Is(Level::kProblem, "no server answers", "contexts show")));
}

TEST(JudgeServer, VersionsAndRolesMatter) {
  ServerFacts server = GoodServer();
  server.who.set_server_version("0.9+bb");
  EXPECT_THAT(JudgeServer(server, kVersion),
              AllOf(Contains(Is(Level::kWarning, "0.9+bb, and this client 1.0+aa")),
                    Contains(Is(Level::kWarning, "The worker alpha has the version 1.0+aa"))));
  server = GoodServer();
  server.who.set_role(v1::ROLE_NONE);
  EXPECT_THAT(JudgeServer(server, kVersion),
              Contains(Is(Level::kProblem, "anna, who may do nothing", "users set")));
}

TEST(JudgeServer, TheClockIsToldByWorkersInContact) {
  ServerFacts server = GoodServer();
  server.workers = {ActiveWorker(server.now + absl::Minutes(5))};
  EXPECT_THAT(JudgeServer(server, kVersion),
              Contains(Is(Level::kWarning, "5m 00s ahead of ours", "chrony")));
  server.workers = {ActiveWorker(server.now - absl::Hours(3))};
  EXPECT_THAT(JudgeServer(server, kVersion), Contains(Is(Level::kProblem, "behind ours")));
  // One that was heard long ago says nothing.
  server.workers[0].set_state(v1::WORKER_STATE_GONE);
  EXPECT_THAT(JudgeServer(server, kVersion), Contains(Is(Level::kOk, "No worker is in contact")));
  server = GoodServer();
  server.is_of_this_host = true;
  server.workers = {ActiveWorker(server.now - absl::Hours(3))};
  EXPECT_THAT(JudgeServer(server, kVersion), kAllFine);
}

TEST(JudgeServer, WorkersAndDevicesThatAreMissingAreNamed) {
  ServerFacts server = GoodServer();
  server.workers[0].set_scheduling(v1::WORKER_SCHEDULING_CORDONED);
  v1::Device& device = *server.workers[0].add_devices();
  device.set_name("GPU-1");
  device.set_health(v1::DEVICE_HEALTH_QUARANTINED);
  device.set_health_reason("Xid 79");
  v1::DatasetSplit& split = *server.workers[0].mutable_datasets()->add_splits();
  split.set_dataset("images");
  split.set_path("pets");
  split.set_error("a class has no images");
  EXPECT_THAT(JudgeServer(server, kVersion),
              AllOf(Contains(Is(Level::kWarning, "gets no new ranks", "uncordon alpha")),
                    Contains(Is(Level::kWarning, "alpha/GPU-1 is set aside: Xid 79",
                                "devices release alpha/GPU-1")),
                    Contains(Is(Level::kWarning, "images:pets: a class has no images"))));
  device.set_health(v1::DEVICE_HEALTH_UNMANAGED_USE);
  EXPECT_THAT(JudgeServer(server, kVersion),
              Contains(Is(Level::kWarning, "alpha/GPU-1 is used by others")));
  server.workers[0].set_state(v1::WORKER_STATE_UNREACHABLE);
  EXPECT_THAT(JudgeServer(server, kVersion),
              Contains(Is(Level::kProblem, "out of contact (UNREACHABLE)", "workers lost alpha")));
  server.workers.clear();
  EXPECT_THAT(JudgeServer(server, kVersion), Contains(Is(Level::kWarning, "has no workers")));
}

}  // namespace
}  // namespace trainyard::doctor
