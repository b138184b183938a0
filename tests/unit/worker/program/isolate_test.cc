// Tests the words with which programs are put into sandboxes and containers, word by word.
#include "worker/program/isolate.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "worker/program/container.h"
#include "worker/program/sandbox.h"

namespace trainyard::program {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kCommand = {"python3", "train.py", "--note", "two words"};

// Each word in brackets, so that a blank within one is seen.
std::string Joined(const std::vector<std::string>& words) {
  return absl::StrCat("[", absl::StrJoin(words, "] ["), "]");
}

Mounts SomeMounts() {
  Mounts mounts;
  mounts.home = "/home/anna";
  mounts.start = "/scratch/anna/run";
  mounts.write = {"/state/attempts/1/1"};
  mounts.read = {"/srv/data"};
  mounts.limits = {"nofile=10:20"};
  return mounts;
}

TEST(SandboxWords, HideTheHostButForWhatTheProgramNeeds) {
  EXPECT_EQ(
      Joined(SandboxWords("/usr/bin/bwrap", "/usr/bin/trainyard-program", "/r/inside", SomeMounts(),
                          kCommand)),
      "[/usr/bin/trainyard-program] [--shield] [/usr/bin/bwrap] [--die-with-parent] [--ro-bind] "
      "[/] [/] [--dev] [/dev] [--proc] [/proc] [--unshare-pid] [--unshare-ipc] [--tmpfs] [/tmp] "
      "[--tmpfs] [/var/tmp] [--tmpfs] [/home] [--ro-bind-try] [/srv/data] [/srv/data] "
      "[--bind-try] [/home/anna] [/home/anna] [--bind] [/state/attempts/1/1] "
      "[/state/attempts/1/1] [--bind] [/scratch/anna/run] [/scratch/anna/run] [--ro-bind] "
      "[/usr/bin/trainyard-program] [/usr/bin/trainyard-program] [--chdir] [/scratch/anna/run] "
      "[--] [/usr/bin/trainyard-program] [--inside] [/r/inside] [python3] [train.py] [--note] "
      "[two words]");
}

TEST(SandboxWords, HideTheHomesBesideTheOwners) {
  Mounts mounts = SomeMounts();
  mounts.home = "/data/homes/anna";
  EXPECT_THAT(Joined(SandboxWords("bwrap", "self", "mark", mounts, kCommand)),
              ::testing::AllOf(HasSubstr("[--tmpfs] [/home] [--tmpfs] [/data/homes] "),
                               HasSubstr("[--bind-try] [/data/homes/anna] [/data/homes/anna]")));
  for (const char* home : {"/srv/anna", "/home/anna", "/root", "/"}) {
    mounts.home = home;
    EXPECT_THAT(Joined(SandboxWords("bwrap", "self", "mark", mounts, kCommand)),
                HasSubstr("[--tmpfs] [/home] [--ro-bind-try]"))
        << home;
  }
}

TEST(SandboxWords, ShowNoGpusButTheGranted) {
  Mounts mounts = SomeMounts();
  mounts.gpus = {"/dev/nvidia3"};
  const std::string words = Joined(SandboxWords("bwrap", "self", "mark", mounts, kCommand));
  EXPECT_THAT(words, HasSubstr("[--dev-bind] [/dev/nvidia3] [/dev/nvidia3] [--dev-bind-try] "
                               "[/dev/nvidiactl] [/dev/nvidiactl]"));
  EXPECT_THAT(words, Not(HasSubstr("/dev/nvidia0")));
}

TEST(SandboxWords, LetTheRanksOfAGangShareMemory) {
  Mounts mounts = SomeMounts();
  mounts.is_alone = false;
  const std::string words = Joined(SandboxWords("bwrap", "self", "mark", mounts, kCommand));
  EXPECT_THAT(words, HasSubstr("[--bind] [/dev/shm] [/dev/shm]"));
  EXPECT_THAT(words, Not(HasSubstr("--unshare")));
}

TEST(SandboxWords, HandOutNoFolderOfTheSystem) {
  Mounts mounts = SomeMounts();
  mounts.home = "/";
  mounts.start = "/usr";
  const std::string words = Joined(SandboxWords("bwrap", "self", "mark", mounts, kCommand));
  EXPECT_THAT(words, Not(HasSubstr("[--bind-try] [/] [/]")));
  EXPECT_THAT(words, Not(HasSubstr("[--bind] [/usr] [/usr]")));
}

// The words for a program with two variables, one of which is to be removed.
std::string ContainerText(const run_dir::Isolation& isolation, const Image& image,
                          const Mounts& mounts = SomeMounts()) {
  const Variables variables = {{"RANK", "0"}, {"PYTHONHOME", std::nullopt}};
  const auto words = ContainerWords(isolation, image, mounts, variables, kCommand);
  return words.ok() ? Joined(*words) : std::string(words.status().message());
}

run_dir::Isolation Runtime(const std::string& name, const std::string& program) {
  run_dir::Isolation isolation;
  isolation.level = run_dir::IsolationLevel::kContainer;
  isolation.runtime = name;
  isolation.program = program;
  return isolation;
}

TEST(ContainerWords, OfPodman) {
  const std::string user = geteuid() == 0 ? "" : "[--userns] [keep-id] ";
  EXPECT_EQ(ContainerText(Runtime("podman", "/usr/bin/podman"), {"debian:12"}),
            absl::StrCat("[/usr/bin/podman] [run] [--rm] [--network] [host] [--ipc] [host] [--pid] "
                         "[host] [--log-driver] [none] [--security-opt] [label=disable] "
                         "[--ulimit] [nofile=10:20] ",
                         user,
                         "[--volume] [/state/attempts/1/1:/state/attempts/1/1] [--volume] "
                         "[/scratch/anna/run:/scratch/anna/run] [--volume] "
                         "[/srv/data:/srv/data:ro] [--env] [RANK] [--workdir] [/scratch/anna/run] "
                         "[--entrypoint] [] [debian:12] [python3] [train.py] [--note] "
                         "[two words]"));
}

TEST(ContainerWords, OfPodmanInAControlGroupWithGpusAndAFolder) {
  run_dir::Isolation isolation = Runtime("podman", "podman");
  isolation.cgroup = "/sys/fs/cgroup/x";
  Mounts mounts = SomeMounts();
  mounts.gpu_uuids = {"GPU-1", "GPU-2"};
  const std::string words = ContainerText(isolation, {"/images/a", Image::Kind::kFolder}, mounts);
  EXPECT_THAT(words, HasSubstr("[--cgroups] [disabled]"))
      << "a container stays in the group of its rank";
  EXPECT_THAT(words, HasSubstr("[--device] [nvidia.com/gpu=GPU-1] [--device] "
                               "[nvidia.com/gpu=GPU-2]"));
  EXPECT_THAT(words, HasSubstr("[--entrypoint] [] [--rootfs] [/images/a] [python3]"));
  EXPECT_THAT(ContainerText(isolation, {"/a.tar", Image::Kind::kFile}),
              HasSubstr("[docker-archive:/a.tar] [python3]"));
}

TEST(ContainerWords, OfApptainer) {
  const run_dir::Isolation isolation = Runtime("apptainer", "/usr/bin/apptainer");
  EXPECT_EQ(ContainerText(isolation, {"debian:12"}),
            "[/usr/bin/apptainer] [--quiet] [exec] [--contain] [--no-home] [--bind] "
            "[/state/attempts/1/1] [--bind] [/scratch/anna/run] [--bind] [/srv/data:/srv/data:ro] "
            "[--pwd] [/scratch/anna/run] [docker://debian:12] [python3] [train.py] [--note] "
            "[two words]");
  Mounts mounts = SomeMounts();
  mounts.gpu_uuids = {"GPU-1"};
  const std::string words = ContainerText(isolation, {"/a.sif", Image::Kind::kFile}, mounts);
  EXPECT_THAT(words, HasSubstr("[--no-home] [--nv] [--bind]"));
  EXPECT_THAT(words, HasSubstr("[/scratch/anna/run] [/a.sif] [python3]"));
  EXPECT_THAT(ContainerText(isolation, {"oras://host/image"}), HasSubstr("[oras://host/image]"));
}

TEST(ContainerWords, OfCharliecloud) {
  const run_dir::Isolation isolation = Runtime("charliecloud", "/usr/bin/ch-run");
  EXPECT_EQ(ContainerText(isolation, {"/images/a", Image::Kind::kFolder}),
            "[/usr/bin/ch-run] [--private-tmp] [--write] [--bind=/srv/data] "
            "[--bind=/state/attempts/1/1] [--bind=/scratch/anna/run] [--cd=/scratch/anna/run] "
            "[/images/a] [--] [python3] [train.py] [--note] [two words]");
  EXPECT_THAT(ContainerText(isolation, {"debian:12"}), Not(HasSubstr("--write")));
}

TEST(ContainerWords, OfEnroot) {
  const run_dir::Isolation isolation = Runtime("enroot", "/usr/bin/enroot");
  Mounts mounts = SomeMounts();
  mounts.gpu_uuids = {"GPU-1", "GPU-2"};
  EXPECT_EQ(ContainerText(isolation, {"/a.sqsh", Image::Kind::kFile}, mounts),
            "[/usr/bin/enroot] [start] [--mount] [/state/attempts/1/1:/state/attempts/1/1] "
            "[--mount] [/scratch/anna/run:/scratch/anna/run] [--mount] "
            "[/srv/data:/srv/data:bind,ro,x-create=dir] [--env] [RANK] [--env] "
            "[NVIDIA_VISIBLE_DEVICES=GPU-1,GPU-2] [/a.sqsh] [/bin/sh] [-c] "
            "[cd \"$1\" && shift && exec \"$@\"] [sh] [/scratch/anna/run] [python3] [train.py] "
            "[--note] [two words]");
  EXPECT_THAT(ContainerText(isolation, {"/a.sqsh", Image::Kind::kFile}),
              HasSubstr("[NVIDIA_VISIBLE_DEVICES=void]"));
  EXPECT_THAT(ContainerText(isolation, {"debian:12"}), HasSubstr("enroot import"));
}

TEST(ContainerWords, AnUnknownRuntimeIsRefused) {
  EXPECT_THAT(ContainerText(Runtime("jail", "jail"), {"a"}), HasSubstr("'jail'"));
}

TEST(ImageOf, TellsPathsFromReferences) {
  const testing::TempDir folder;
  folder.Write("image.sif", "");
  EXPECT_EQ(ImageOf("debian:12", "/start", "/home/anna").kind, Image::Kind::kReference);
  EXPECT_EQ(ImageOf(folder.path(), "/start", "/home/anna").kind, Image::Kind::kFolder);
  const Image file = ImageOf("./image.sif", folder.path(), "/home/anna");
  EXPECT_EQ(file.kind, Image::Kind::kFile);
  EXPECT_EQ(file.name, folder.path() + "/./image.sif");
  EXPECT_EQ(ImageOf("~/image", "/start", "/home/anna").name, "/home/anna/image");
}

TEST(OwnLimits, AreThoseOfThisProcess) {
  EXPECT_THAT(OwnLimits(), ElementsAre(::testing::MatchesRegex("nofile=-?[0-9]+:-?[0-9]+"),
                                       ::testing::MatchesRegex("nproc=-?[0-9]+:-?[0-9]+")));
}

TEST(GpuNodes, AreFoundByUuid) {
  const testing::TempDir folder;
  for (const auto& [bus, uuid, minor] : std::vector<std::tuple<std::string, std::string, int>>{
           {"0000:01:00.0", "GPU-a", 0}, {"0000:41:00.0", "GPU-b", 7}}) {
    ASSERT_TRUE(MakeDirectories(folder.File(bus)).ok());
    folder.Write(bus + "/information", absl::StrCat("Model: \t\t X\nGPU UUID: \t ", uuid,
                                                    "\nDevice Minor: \t ", minor, "\n"));
  }
  EXPECT_THAT(GpuNodes({"GPU-b", "GPU-a"}, folder.path()).value(),
              ElementsAre("/dev/nvidia7", "/dev/nvidia0"));
  EXPECT_TRUE(GpuNodes({}, "/does/not/exist").value().empty());
  EXPECT_THAT(std::string(GpuNodes({"MIG-c"}, folder.path()).status().message()),
              HasSubstr("MIG-c"));
}

class Isolated : public ::testing::Test {
 protected:
  std::vector<std::string> Words() {
    Files files;
    files.folder = "/r/ranks/0/program";
    files.data = "/srv/data/cifar10";
    assignment_.dataset_dir = "/srv/data";
    const auto words = IsolatedWords({.spec = spec_,
                                      .assignment = assignment_,
                                      .rank = assignment_.ranks[0],
                                      .files = files,
                                      .variables = variables_,
                                      .attempt_dir = "/r",
                                      .start = "/start",
                                      .home = "/home/anna",
                                      .cache = ""},
                                     kCommand);
    return words.value_or(std::vector<std::string>{});
  }

  ProgramSpec spec_;
  Variables variables_;
  run_dir::Assignment assignment_ = {.ranks = {{.rank = 0, .device_type = "cpu"}}};
};

TEST_F(Isolated, WithoutALevelTheCommandStaysAsItIs) {
  EXPECT_EQ(Words(), kCommand);
  assignment_.isolation.level = run_dir::IsolationLevel::kCgroup;
  EXPECT_EQ(Words(), kCommand);
  EXPECT_TRUE(HasBegun(assignment_.isolation, "/nowhere", 1));
}

TEST_F(Isolated, ASandboxGetsRunDirectoryAndData) {
  assignment_.isolation = {run_dir::IsolationLevel::kSandbox, "bubblewrap", "/usr/bin/bwrap", ""};
  const std::string words = Joined(Words());
  EXPECT_THAT(words, HasSubstr("[--bind] [/r] [/r]"));
  EXPECT_THAT(words, HasSubstr("[--ro-bind-try] [/srv/data] [/srv/data]"));
  EXPECT_THAT(words, HasSubstr("[--inside] [/r/ranks/0/program/inside]"));
  EXPECT_FALSE(HasBegun(assignment_.isolation, "/nowhere", 1)) << "the mark is not there";
}

TEST_F(Isolated, AContainerRunsTheImageOfTheSpec) {
  assignment_.isolation = Runtime("podman", "podman");
  spec_.container = "debian:12";
  EXPECT_THAT(Joined(Words()), HasSubstr("[debian:12] [python3]"));
  EXPECT_FALSE(HasBegun(assignment_.isolation, "/nowhere", 125)) << "podman says so by this code";
  EXPECT_TRUE(HasBegun(assignment_.isolation, "/nowhere", 1));
}

}  // namespace
}  // namespace trainyard::program
