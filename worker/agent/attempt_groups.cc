// Makes, finds and removes the control groups of attempts.
#include "worker/agent/attempt_groups.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/isolation.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/run_dir/isolation.h"

namespace trainyard::agent {
namespace {

using cgroup::Group;
using cgroup::Limits;

constexpr char kDaemonGroup[] = "daemon";
// Killed processes are gone within milliseconds, unless they wait for a device.
constexpr absl::Duration kKillWait = absl::Milliseconds(200);
// Memory and processes must be bounded. Where processors cannot be, ranks are only bound to them.
const std::vector<std::string>& Controllers() {
  static const auto* controllers = new std::vector<std::string>{"memory", "pids", "cpu", "cpuset"};
  return *controllers;
}

absl::Status NotDelegated(const std::string& why) {
  return absl::FailedPreconditionError(why);
}

// Returns the folder of the group that was delegated to this daemon.
absl::StatusOr<Group> FindBase(const AttemptGroupOptions& options, const cgroup::TreeCalls& calls) {
  const Group root(options.mount, calls);
  if (!root.Has("cgroup.controllers")) {
    return NotDelegated(absl::StrCat("'", options.mount,
                                     "' is no tree of control groups version 2; start the kernel "
                                     "with systemd.unified_cgroup_hierarchy=1 to have one"));
  }
  if (options.where != kFindGroup) {
    Group named(absl::StrCat(options.mount, options.where), calls);
    if (named.Exists()) return named;
    return NotDelegated(absl::StrCat("there is no control group '", named.path(), "'"));
  }
  const std::string own = options.own_group;
  const size_t slash = own.rfind('/');
  if (slash == std::string::npos) return NotDelegated("this process is in no control group");
  Group jobs(absl::StrCat(options.mount, own.substr(0, slash + 1), kJobsUnit), calls);
  if (jobs.IsDelegated()) return jobs;
  // An earlier daemon in the same group has moved its neighbours, and so its successor, out of it.
  absl::string_view above = own;
  if (absl::ConsumeSuffix(&above, absl::StrCat("/", kDaemonGroup))) {
    Group parent(absl::StrCat(options.mount, above), calls);
    if (parent.IsDelegated()) return parent;
  }
  Group mine(absl::StrCat(options.mount, own), calls);
  if (mine.IsDelegated()) return mine;
  return NotDelegated(absl::StrCat("neither '", jobs.path(), "' nor '", mine.path(),
                                   "' was delegated (Delegate=yes)"));
}

// A group that has groups with limits below may hold no process itself.
absl::Status Empty(const Group& base) {
  const Group daemon = base.Child(kDaemonGroup);
  TY_RETURN_IF_ERROR(daemon.Make());
  for (const pid_t process : base.Processes()) TY_RETURN_IF_ERROR(daemon.Take(process));
  return absl::OkStatus();
}

int64_t AllMemory(const std::vector<Limits>& limits) {
  int64_t sum = kSupervisorBytes;
  for (const Limits& limit : limits) {
    if (limit.memory_bytes == 0) return 0;
    sum += limit.memory_bytes;
  }
  return sum;
}

int64_t AllProcesses(const std::vector<Limits>& limits) {
  int64_t sum = kSupervisorProcesses;
  for (const Limits& limit : limits) {
    if (limit.processes == 0) return 0;
    sum += limit.processes;
  }
  return sum;
}

// Returns what all ranks have together. The owner may move processes out of the groups of ranks, so
// these alone bound nothing.
Limits AttemptLimits(const std::vector<run_dir::RankAssignment>& ranks,
                     const std::vector<Limits>& limits) {
  Limits all = {.memory_bytes = AllMemory(limits), .processes = AllProcesses(limits)};
  std::set<int64_t> cpus;
  for (const run_dir::RankAssignment& rank : ranks) {
    if (rank.cpus.empty()) return all;
    cpus.insert(rank.cpus.begin(), rank.cpus.end());
    all.cpu_shares += static_cast<int64_t>(rank.cpus.size());
  }
  all.cpus.assign(cpus.begin(), cpus.end());
  return all;
}

}  // namespace

std::vector<Limits> RankLimits(const std::vector<run_dir::RankAssignment>& ranks, bool is_per_host,
                               int64_t processes) {
  std::vector<Limits> limits;
  for (const run_dir::RankAssignment& rank : ranks) {
    limits.push_back({.memory_bytes = rank.host_memory_bytes,
                      .processes = processes,
                      .cpus = rank.cpus,
                      .ends_together = true});
  }
  if (!is_per_host || limits.size() < 2) return limits;
  Limits& first = limits.front();
  for (size_t i = 1; i < limits.size(); ++i) {
    const bool has_limit = first.memory_bytes > 0 && limits[i].memory_bytes > 0;
    first.memory_bytes = has_limit ? first.memory_bytes + limits[i].memory_bytes : 0;
    for (const int64_t cpu : limits[i].cpus) {
      if (std::find(first.cpus.begin(), first.cpus.end(), cpu) == first.cpus.end()) {
        first.cpus.push_back(cpu);
      }
    }
    if (limits[i].cpus.empty()) first.cpus.clear();
    if (limits[i].memory_bytes > 0) limits[i].memory_bytes = kSupervisorBytes;
  }
  return limits;
}

absl::StatusOr<AttemptGroups> AttemptGroups::Open(const AttemptGroupOptions& options,
                                                  const cgroup::TreeCalls& calls) {
  TY_ASSIGN_OR_RETURN(Group base, FindBase(options, calls));
  TY_RETURN_IF_ERROR(Empty(base));
  const std::vector<std::string> enabled = base.Enable(Controllers());
  for (const char* needed : {"memory", "pids"}) {
    if (std::find(enabled.begin(), enabled.end(), needed) != enabled.end()) continue;
    return NotDelegated(absl::StrCat("the control group '", base.path(), "' has no controller '",
                                     needed, "' for the groups below it"));
  }
  LogInfo("attempts get control groups",
          {{"group", base.path()}, {"controllers", absl::StrJoin(enabled, " ")}});
  return AttemptGroups(std::move(base), options.mark, options.processes);
}

Group AttemptGroups::GroupOf(AttemptId id) const {
  return base_.Child(absl::StrCat(kAttemptGroupPrefix, mark_, "-", id.job.value, "-", id.number));
}

std::string AttemptGroups::PathOf(AttemptId id) const {
  return GroupOf(id).path();
}

bool AttemptGroups::Has(AttemptId id) const {
  return GroupOf(id).Exists();
}

absl::Status AttemptGroups::GiveTo(const Group& group, const FileOwner& owner) const {
  if (owner.is_self) return absl::OkStatus();
  for (const char* file : {"cgroup.procs", "cgroup.kill"}) {
    if (group.Has(file)) TY_RETURN_IF_ERROR(group.GiveTo(file, owner.uid, owner.gid));
  }
  return absl::OkStatus();
}

absl::Status AttemptGroups::Make(AttemptId id, const std::vector<run_dir::RankAssignment>& ranks,
                                 bool is_per_host, const FileOwner& owner) const {
  const Group group = GroupOf(id);
  const std::vector<Limits> limits = RankLimits(ranks, is_per_host, processes_);
  // Somebody may have started the unit anew, and its group is then as it was in the beginning.
  TY_RETURN_IF_ERROR(Empty(base_));
  (void)base_.Enable(Controllers());
  TY_RETURN_IF_ERROR(group.Make());
  (void)group.Enable(Controllers());
  TY_RETURN_IF_ERROR(cgroup::SetLimits(group, AttemptLimits(ranks, limits)));
  TY_RETURN_IF_ERROR(GiveTo(group, owner));
  const Group supervisor = group.Child(run_dir::kSupervisorGroup);
  TY_RETURN_IF_ERROR(supervisor.Make());
  TY_RETURN_IF_ERROR(GiveTo(supervisor, owner));
  for (size_t i = 0; i < ranks.size(); ++i) {
    const Group rank = group.Child(run_dir::RankGroupName(ranks[i].rank));
    TY_RETURN_IF_ERROR(rank.Make());
    TY_RETURN_IF_ERROR(cgroup::SetLimits(rank, limits[i]));
    TY_RETURN_IF_ERROR(GiveTo(rank, owner));
  }
  return absl::OkStatus();
}

absl::Status AttemptGroups::Kill(AttemptId id) const {
  const Group group = GroupOf(id);
  if (!group.Exists() || !group.IsPopulated()) return absl::OkStatus();
  TY_RETURN_IF_ERROR(group.Kill());
  if (group.WaitUntilEmpty(kKillWait)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("processes in the control group '", group.path(), "' are still ending"));
}

absl::Status AttemptGroups::Remove(AttemptId id) const {
  TY_RETURN_IF_ERROR(Kill(id));
  return GroupOf(id).Remove();
}

void AttemptGroups::RemoveOthers(const std::set<AttemptId>& known) const {
  for (const std::string& name : base_.Children()) {
    absl::string_view rest = name;
    if (!absl::ConsumePrefix(&rest, absl::StrCat(kAttemptGroupPrefix, mark_, "-"))) continue;
    const std::vector<absl::string_view> numbers = absl::StrSplit(rest, '-');
    AttemptId id;
    if (numbers.size() != 2 || !absl::SimpleAtoi(numbers[0], &id.job.value) ||
        !absl::SimpleAtoi(numbers[1], &id.number) || known.contains(id)) {
      continue;
    }
    LogWarning("a control group without a run directory is removed", {{"group", name}});
    const absl::Status removed = Remove(id);
    if (!removed.ok()) LogWarning("it is still there", {{"why", std::string(removed.message())}});
  }
}

}  // namespace trainyard::agent
