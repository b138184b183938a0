// Holds the one table that says who may call what. It is checked before any handler runs
// (server/rpc/gate.h), and a call without a row does not compile.
#pragma once

#include <array>
#include <cstddef>

#include "absl/strings/string_view.h"
#include "server/access/caller.h"

namespace trainyard::access {

// Says what a caller needs beyond its role, on the jobs that a call names.
enum class Need {
  kNothing,  // the handler itself picks what the caller may see, or the call is about no job
  kSee,      // it may see the job: docs/people.md
  kChange,   // the job is its own, or it is an operator
};

struct Rule {
  absl::string_view rpc;  // "JobService/CancelJob"
  Party party;
  Role least;  // the least role of a user
  Need need;
  // The call changes something, so the audit log has an entry for it.
  bool changes;
  // The handler decides further, and writes that entry (server/rpc/decisions.h). The gate writes
  // those of other calls, and all refusals of its own.
  bool is_decided_by_handler = false;
};

// Returns the rule of a call about whose rights the gate cannot know all before the handler has
// read the request.
consteval Rule Further(Rule rule) {
  rule.is_decided_by_handler = true;
  return rule;
}

// The rules, in order of service and name.
inline constexpr std::array kRules = {
    Further({"AccessService/CreateToken", Party::kUser, Role::kViewer, Need::kNothing, true}),
    Rule{"AccessService/DeleteProject", Party::kUser, Role::kOperator, Need::kNothing, true},
    Rule{"AccessService/DeleteUser", Party::kUser, Role::kAdmin, Need::kNothing, true},
    Further({"AccessService/InviteWorker", Party::kUser, Role::kAdmin, Need::kNothing, true}),
    Rule{"AccessService/ListAuditEntries", Party::kUser, Role::kOperator, Need::kNothing, false},
    Rule{"AccessService/ListProjects", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"AccessService/ListTokens", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"AccessService/ListUsers", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"AccessService/RevokeCertificate", Party::kUser, Role::kOperator, Need::kNothing, true},
    Further({"AccessService/RevokeToken", Party::kUser, Role::kNone, Need::kNothing, true}),
    Rule{"AccessService/SetProject", Party::kUser, Role::kOperator, Need::kNothing, true},
    Rule{"AccessService/SetUser", Party::kUser, Role::kAdmin, Need::kNothing, true},
    Rule{"AccessService/WhoAmI", Party::kUser, Role::kNone, Need::kNothing, false},
    Rule{"AgentService/AppendCheckpointFile", Party::kWorker, Role::kNone, Need::kNothing, false},
    Rule{"AgentService/AppendLog", Party::kWorker, Role::kNone, Need::kNothing, false},
    Rule{"AgentService/AppendMetrics", Party::kWorker, Role::kNone, Need::kNothing, false},
    Rule{"AgentService/CommitCheckpoint", Party::kWorker, Role::kNone, Need::kNothing, false},
    Rule{"AgentService/FetchCheckpoint", Party::kWorker, Role::kNone, Need::kNothing, false},
    Rule{"AgentService/FetchCode", Party::kWorker, Role::kNone, Need::kNothing, false},
    Further({"AgentService/FetchSecrets", Party::kWorker, Role::kNone, Need::kNothing, true}),
    Further({"AgentService/JoinWorker", Party::kJoining, Role::kNone, Need::kNothing, true}),
    Further({"AgentService/RegisterWorker", Party::kWorker, Role::kNone, Need::kNothing, true}),
    Rule{"AgentService/RenewCertificate", Party::kWorker, Role::kNone, Need::kNothing, true},
    Rule{"AgentService/ServeTunnel", Party::kWorker, Role::kNone, Need::kNothing, false},
    Rule{"AgentService/SyncWorker", Party::kWorker, Role::kNone, Need::kNothing, false},
    Rule{"AgentService/VerifyCheckpoint", Party::kWorker, Role::kNone, Need::kNothing, false},
    Rule{"BundleService/AppendImportedFile", Party::kUser, Role::kSubmitter, Need::kChange, false},
    Rule{"BundleService/AppendImportedMetrics", Party::kUser, Role::kSubmitter, Need::kChange,
         false},
    Rule{"BundleService/CommitImportedCheckpoint", Party::kUser, Role::kSubmitter, Need::kChange,
         true},
    Further(
        {"BundleService/ImportCheckpoint", Party::kUser, Role::kSubmitter, Need::kNothing, true}),
    Further({"BundleService/ImportJob", Party::kUser, Role::kSubmitter, Need::kNothing, true}),
    Rule{"CheckpointService/DownloadCheckpoint", Party::kUser, Role::kViewer, Need::kSee, false},
    Rule{"CheckpointService/DownloadOutput", Party::kUser, Role::kViewer, Need::kSee, false},
    Rule{"CheckpointService/GetCheckpoint", Party::kUser, Role::kViewer, Need::kSee, false},
    Rule{"CheckpointService/GetOutputs", Party::kUser, Role::kViewer, Need::kSee, false},
    Rule{"CheckpointService/ListCheckpoints", Party::kUser, Role::kViewer, Need::kSee, false},
    Rule{"CheckpointService/VerifyCheckpoint", Party::kUser, Role::kViewer, Need::kSee, false},
    Rule{"CodeService/DownloadCode", Party::kUser, Role::kViewer, Need::kSee, false},
    Rule{"CodeService/FindCode", Party::kUser, Role::kSubmitter, Need::kNothing, false},
    Rule{"CodeService/UploadCode", Party::kUser, Role::kSubmitter, Need::kNothing, false},
    Rule{"FleetService/CordonWorker", Party::kUser, Role::kOperator, Need::kNothing, true},
    Rule{"FleetService/DeclareWorkerLost", Party::kUser, Role::kOperator, Need::kNothing, true},
    Rule{"FleetService/DeleteWorker", Party::kUser, Role::kOperator, Need::kNothing, true},
    Rule{"FleetService/DrainWorker", Party::kUser, Role::kOperator, Need::kNothing, true},
    Rule{"FleetService/GetWorker", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"FleetService/ListWorkers", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"FleetService/QuarantineDevice", Party::kUser, Role::kOperator, Need::kNothing, true},
    Rule{"FleetService/ReleaseDevice", Party::kUser, Role::kOperator, Need::kNothing, true},
    Rule{"FleetService/UncordonWorker", Party::kUser, Role::kOperator, Need::kNothing, true},
    Rule{"JobService/AnnotateJob", Party::kUser, Role::kSubmitter, Need::kChange, true},
    Rule{"JobService/CancelJob", Party::kUser, Role::kSubmitter, Need::kChange, true},
    Further({"JobService/CancelJobs", Party::kUser, Role::kSubmitter, Need::kNothing, true}),
    Further({"JobService/CloneJob", Party::kUser, Role::kSubmitter, Need::kSee, true}),
    Further({"JobService/CreateJob", Party::kUser, Role::kSubmitter, Need::kNothing, true}),
    Further({"JobService/CreateJobs", Party::kUser, Role::kSubmitter, Need::kNothing, true}),
    Rule{"JobService/DeleteJob", Party::kUser, Role::kSubmitter, Need::kChange, true},
    Rule{"JobService/DeleteJobData", Party::kUser, Role::kSubmitter, Need::kChange, true},
    Rule{"JobService/DiffJobs", Party::kUser, Role::kViewer, Need::kSee, false},
    Rule{"JobService/ExplainJob", Party::kUser, Role::kViewer, Need::kSee, false},
    Rule{"JobService/GetJob", Party::kUser, Role::kViewer, Need::kSee, false},
    Rule{"JobService/GetLineage", Party::kUser, Role::kViewer, Need::kSee, false},
    Rule{"JobService/ListAttempts", Party::kUser, Role::kViewer, Need::kSee, false},
    Rule{"JobService/ListEvents", Party::kUser, Role::kViewer, Need::kSee, false},
    Rule{"JobService/ListJobs", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"JobService/ListQueue", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"JobService/ListVerifications", Party::kUser, Role::kViewer, Need::kSee, false},
    Rule{"JobService/QueryMetrics", Party::kUser, Role::kViewer, Need::kSee, false},
    Rule{"JobService/ResumeJob", Party::kUser, Role::kSubmitter, Need::kChange, true},
    Rule{"JobService/SuspendJob", Party::kUser, Role::kSubmitter, Need::kChange, true},
    Rule{"JobService/TailLogs", Party::kUser, Role::kViewer, Need::kSee, false},
    Rule{"JobService/WatchJobs", Party::kUser, Role::kViewer, Need::kSee, false},
    Rule{"JobService/WatchMetrics", Party::kUser, Role::kViewer, Need::kSee, false},
    Further({"NotifyService/AddTarget", Party::kUser, Role::kSubmitter, Need::kNothing, true}),
    Rule{"NotifyService/DeleteTarget", Party::kUser, Role::kSubmitter, Need::kNothing, true},
    Rule{"NotifyService/ListDeliveries", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"NotifyService/ListTargets", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"NotifyService/TestTarget", Party::kUser, Role::kSubmitter, Need::kNothing, true},
    Rule{"ProviderService/CancelPilot", Party::kUser, Role::kOperator, Need::kNothing, true},
    Rule{"ProviderService/CreateProvider", Party::kUser, Role::kAdmin, Need::kNothing, true},
    Rule{"ProviderService/DeleteProvider", Party::kUser, Role::kAdmin, Need::kNothing, true},
    Rule{"ProviderService/GetProvider", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"ProviderService/ListProviders", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"ProviderService/PauseProvider", Party::kUser, Role::kOperator, Need::kNothing, true},
    Rule{"ProviderService/ResumeProvider", Party::kUser, Role::kOperator, Need::kNothing, true},
    Rule{"ProviderService/UpdateProvider", Party::kUser, Role::kAdmin, Need::kNothing, true},
    Rule{"SecretService/DeleteSecret", Party::kUser, Role::kSubmitter, Need::kNothing, true},
    Rule{"SecretService/ListSecrets", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"SecretService/SetSecret", Party::kUser, Role::kSubmitter, Need::kNothing, true},
    Rule{"SharingService/CreateReservation", Party::kUser, Role::kOperator, Need::kNothing, true},
    Rule{"SharingService/DeleteQuota", Party::kUser, Role::kOperator, Need::kNothing, true},
    Rule{"SharingService/DeleteReservation", Party::kUser, Role::kOperator, Need::kNothing, true},
    Rule{"SharingService/ListQuotas", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"SharingService/ListReservations", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"SharingService/ListShares", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"SharingService/ListUsage", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"SharingService/SetQuota", Party::kUser, Role::kOperator, Need::kNothing, true},
    Rule{"SpecService/DeleteSavedSpec", Party::kUser, Role::kSubmitter, Need::kNothing, true},
    Rule{"SpecService/GetSavedSpec", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"SpecService/ListSavedSpecs", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"SpecService/SaveSpec", Party::kUser, Role::kSubmitter, Need::kNothing, true},
    Further({"SweepService/CreateSweep", Party::kUser, Role::kSubmitter, Need::kNothing, true}),
    Rule{"SweepService/DeleteSweep", Party::kUser, Role::kSubmitter, Need::kNothing, true},
    Rule{"SweepService/GetSweep", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"SweepService/ListSweeps", Party::kUser, Role::kViewer, Need::kNothing, false},
    Rule{"SweepService/ResumeSweep", Party::kUser, Role::kSubmitter, Need::kNothing, true},
    Rule{"SweepService/StopSweep", Party::kUser, Role::kSubmitter, Need::kNothing, true},
    // The handler admits the owner of the job and administrators.
    Further({"TunnelService/OpenTunnel", Party::kUser, Role::kSubmitter, Need::kNothing, true}),
};

// Returns the rule of a call. If the table has none, at() fails, which is an error of compilation.
consteval const Rule& RuleOf(absl::string_view rpc) {
  size_t row = 0;
  while (row < kRules.size() && kRules[row].rpc != rpc) ++row;
  return kRules.at(row);
}

// Returns true if the role of the caller is enough for the call. Jobs are looked at apart.
bool RoleSuffices(const Rule& rule, const Caller& caller);

}  // namespace trainyard::access
