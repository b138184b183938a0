// Judges the system on which ranks run: control groups, sandboxes, limits, memory and the clock.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/doctor/judge.h"
#include "common/base/duration.h"
#include "common/base/strings.h"

namespace trainyard::doctor {
namespace {

// The server keeps 128 files for itself, and each client and worker has one.
constexpr int64_t kFewOpenFiles = 4096;
// A worker and each command that follows a job take one of them.
constexpr int64_t kFewWatchers = 64;
constexpr int64_t kFewWatches = 4096;
// Docker gives containers 64 MiB, in which NCCL and data loaders fail.
constexpr int64_t kLittleSharedMemory = int64_t{256} << 20;
// A server, a worker and the smallest job need this much.
constexpr int64_t kLittleMemory = int64_t{1} << 30;
constexpr absl::Duration kClockErrorMax = absl::Seconds(5);

}  // namespace

Finding JudgeCgroup(const CgroupFacts& cgroup) {
  const std::string check = "control groups";
  if (!cgroup.has_v2) {
    return Warning(check,
                   "/sys/fs/cgroup is no tree of control groups version 2, so the memory and the "
                   "processes of jobs are not bounded.",
                   "Boot with systemd.unified_cgroup_hierarchy=1; in a container, let its host do "
                   "so.");
  }
  if (cgroup.group.empty()) {
    return Warning(
        check,
        cgroup.has_jobs_unit
            ? "The unit trainyard-jobs does not run, so the memory of jobs is not bounded."
            : "No control group was delegated to a worker that is started here, so the memory of "
              "its jobs is not bounded.",
        cgroup.has_jobs_unit
            ? "Run `systemctl start trainyard-jobs`, and then `systemctl restart trainyard-worker`."
            : "Start it with `systemd-run --user --scope -p Delegate=yes trainyard up`.");
  }
  const auto lacks = [&](const char* controller) {
    return std::find(cgroup.controllers.begin(), cgroup.controllers.end(), controller) ==
           cgroup.controllers.end();
  };
  std::vector<std::string> missing;
  for (const char* controller : {"memory", "pids", "cpu", "cpuset"}) {
    if (lacks(controller)) missing.emplace_back(controller);
  }
  if (missing.empty()) {
    return Ok(check, absl::StrCat("Jobs get control groups below ", cgroup.group,
                                  ", which bound memory, processes and processors."));
  }
  return Warning(
      check,
      absl::StrCat("The control group ", cgroup.group, " lacks ", absl::StrJoin(missing, ", "),
                   lacks("memory") || lacks("pids")
                       ? ", so a worker does not use it."
                       : ", so jobs are not kept to their processors."),
      "Set `Delegate=yes` for the unit, or name these controllers in its Delegate=, and "
      "start it again.");
}

Finding JudgeSandbox(const SandboxFacts& sandbox) {
  const std::string check = "sandboxes";
  const std::string containers =
      sandbox.runtime.empty() ? "No runtime of containers is installed (apptainer, charliecloud, "
                                "enroot, or podman where jobs do not run as their owners)."
                              : absl::StrCat("Containers run with ", sandbox.runtime, ".");
  if (sandbox.bubblewrap.empty()) {
    return Warning(check,
                   absl::StrCat("Jobs that ask for a sandbox do not run here, because bwrap is "
                                "missing. ",
                                containers),
                   "Install the package bubblewrap, and restart the worker.");
  }
  if (!sandbox.error.empty()) {
    return Warning(check, absl::StrCat("bwrap makes no sandbox for you: ", sandbox.error),
                   "Permit user namespaces: `sysctl kernel.unprivileged_userns_clone=1`, "
                   "`sysctl user.max_user_namespaces=10000`, and on Ubuntu "
                   "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`.");
  }
  return Ok(check,
            absl::StrCat("Sandboxes can be made with ", sandbox.bubblewrap, ". ", containers));
}

Findings JudgeLimits(const LimitFacts& limits) {
  Findings findings;
  if (limits.open_files < kFewOpenFiles) {
    findings.push_back(Warning(
        "open files",
        absl::StrCat("You may open ", limits.open_files,
                     " files, so a server of yours accepts few connections."),
        "Raise the hard limit: `LimitNOFILE=65536` in a unit, or /etc/security/limits.conf."));
  }
  if (limits.watchers < kFewWatchers || limits.watches < kFewWatches) {
    findings.push_back(Warning(
        "inotify",
        absl::StrCat("A user may watch ", limits.watches, " folders with ", limits.watchers,
                     " instances of inotify; a worker needs one for each job."),
        "Run `sysctl fs.inotify.max_user_instances=512 fs.inotify.max_user_watches=65536`, and "
        "write both into /etc/sysctl.d."));
  }
  if (limits.shared_memory_bytes < kLittleSharedMemory) {
    findings.push_back(Warning(
        "/dev/shm",
        limits.shared_memory_bytes == 0
            ? std::string("There is no /dev/shm.")
            : absl::StrCat("/dev/shm has ", FormatBytes(limits.shared_memory_bytes), "."),
        "NCCL and the data loaders of PyTorch need more: `mount -o remount,size=50% /dev/shm`, or "
        "--shm-size of the container."));
  }
  if (findings.empty()) {
    findings.push_back(
        Ok("limits",
           absl::StrCat(FormatCount(limits.open_files), " open files, ",
                        FormatCount(limits.watchers), " instances of inotify and ",
                        FormatBytes(limits.shared_memory_bytes), " of shared memory are enough.")));
  }
  return findings;
}

Finding JudgeMemory(const MemoryFacts& memory) {
  const std::string check = "memory";
  const int64_t usable = std::min(memory.total_bytes, memory.allowed_bytes);
  const std::string swap =
      memory.swap_bytes == 0 ? ", without swap."
                             : absl::StrCat(", and ", FormatBytes(memory.swap_bytes), " of swap.");
  const std::string has = absl::StrCat(
      FormatBytes(memory.available_bytes), " of ", FormatBytes(memory.total_bytes), " are free",
      usable < memory.total_bytes
          ? absl::StrCat(", of which a control group allows ", FormatBytes(usable))
          : "",
      swap);
  if (std::min(memory.available_bytes, usable) < kLittleMemory) {
    return Warning(check, absl::StrCat("There is little memory: ", has),
                   "End what takes it, or give workers less of it with --reserve_memory.");
  }
  return Ok(check, has);
}

Finding JudgeClock(const ClockFacts& clock) {
  const std::string check = "clock";
  // Everything here was written later.
  if (clock.now < absl::FromCivil(absl::CivilYear(2024), absl::UTCTimeZone())) {
    return Problem(check,
                   absl::StrCat("The clock says ", absl::FormatTime(clock.now), ", which is over."),
                   "Let systemd-timesyncd or chrony set it; certificates do not hold otherwise.");
  }
  if (!clock.is_known) return Ok(check, "The kernel does not tell whether the clock is set.");
  if (!clock.is_synchronized) {
    return Warning(check, "The kernel says that nothing keeps the clock right.",
                   "Run `timedatectl set-ntp true`, or install chrony. (In a virtual machine or a "
                   "container, its host may do that unseen.)");
  }
  if (clock.error_max > kClockErrorMax) {
    return Warning(check,
                   absl::StrCat("The clock may be wrong by ", DurationText(clock.error_max), "."),
                   "`timedatectl timesync-status` or `chronyc tracking` says why.");
  }
  return Ok(check,
            absl::StrCat("The clock is kept right, to ", DurationText(clock.error_max), "."));
}

}  // namespace trainyard::doctor
