// Looks callers up, applies the rules, and notes what happened.
#include "server/rpc/gate.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "server/rpc/decisions.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"

namespace trainyard::rpc {
namespace {

using access::Caller;
using access::Party;
using access::Role;
using access::Rule;

absl::Status NotPermitted(absl::string_view reason, absl::string_view message) {
  return MakeError(absl::StatusCode::kPermissionDenied, reason, message);
}

// Gives the caller the role of its user: the one that was set, or else the one of the system.
void TakeRole(const access::Peer& system, const access::Directory& directory, Caller& caller) {
  caller.role = system.role;
  caller.role_source = system.role_source;
  // Nobody can take its rights from the user that runs the server, who could change the files.
  if (system.is_host) return;
  if (const auto set = directory.RoleOf(caller.user); set.has_value()) {
    caller.role = *set;
    caller.role_source = access::RoleSource::kSet;
  }
}

// Makes the administrator act for the user that the call names.
absl::Status TakeOver(absl::string_view user, const Services& services, Caller& caller) {
  if (!IsUserName(user)) {
    return InvalidFields({{absl::StrCat("metadata.", kActAsKey),
                           "is no user name; expected 1 to 64 letters, digits, '.', '_', '-' and "
                           "'@'"}});
  }
  if (user == caller.user) return absl::OkStatus();
  if (caller.role < Role::kAdmin) {
    return NotPermitted("NOT_ADMIN", absl::StrCat("'", caller.user, "' may not act for '", user,
                                                  "'; only administrators act for others"));
  }
  caller.real_user = std::exchange(caller.user, std::string(user));
  // The system is asked for each such call, because groups change. It may take its time, but only
  // administrators get here.
  const Caller other = CallerFor(caller.user, services);
  caller.role = other.role;
  caller.role_source = other.role_source;
  caller.is_host = false;
  return absl::OkStatus();
}

// Returns the job that a name is about, or nothing if the handler will refuse the name.
std::optional<JobId> JobOf(absl::string_view resource) {
  if (const auto job = ParseJobName(resource); job.ok()) return *job;
  if (const auto attempt = ParseAttemptName(resource); attempt.ok()) return attempt->job;
  if (const auto checkpoint = ParseCheckpointName(resource); checkpoint.ok()) {
    return checkpoint->job;
  }
  return std::nullopt;
}

absl::Status CheckJob(const Rule& rule, const Caller& caller, const Services& services, JobId job) {
  if (rule.need == access::Need::kChange) return CheckMayChange(caller, services, job);
  const auto view = services.board.FindJob(job);
  if (view == nullptr || MaySee(caller, services, view->record)) return absl::OkStatus();
  return error::JobNotFound(JobName(job));
}

// Returns true if the audit log has enough of this refusal. A worker that was removed calls again
// and again until somebody stops it, and the log gets its calls as seldom as failed sign-ins.
bool IsRepeated(SignIn& sign_in, const Caller& caller, const absl::Status& refusal) {
  return ErrorReason(refusal) == "CERTIFICATE_REVOKED" &&
         sign_in.delay.Failed(caller.address, sign_in.clock->Uptime()) > absl::ZeroDuration();
}

absl::Status CheckRule(const Rule& rule, const Caller& caller, const Services& services,
                       const std::vector<std::string>& resources) {
  if (!access::RoleSuffices(rule, caller)) {
    if (rule.party == Party::kWorker) {
      return NotPermitted("NOT_A_WORKER",
                          "only workers may call this; users and their tokens may not");
    }
    if (!caller.worker.empty()) {
      return NotPermitted("NOT_A_USER", absl::StrCat("the certificate of worker '", caller.worker,
                                                     "' permits the calls of a worker alone"));
    }
    return NotPermitted(
        "ROLE_TOO_LOW",
        absl::StrCat("'", caller.user, "' has the role ", access::RoleText(caller.role), "; ",
                     rule.rpc, " needs ", access::RoleText(rule.least),
                     ". An administrator sets roles: trainyard users set ", caller.user, " --role ",
                     access::RoleText(rule.least)));
  }
  if (rule.need == access::Need::kNothing) return absl::OkStatus();
  for (const std::string& resource : resources) {
    const std::optional<JobId> job = JobOf(resource);
    if (!job.has_value()) continue;
    TY_RETURN_IF_ERROR(CheckJob(rule, caller, services, *job));
    // Checkpoints that a deleted job left behind are there only for jobs that were promised them.
    // Nobody can tell any more who might see them.
    if (ParseCheckpointName(resource).ok() && services.board.FindJob(*job) == nullptr) {
      return error::CheckpointNotFound(resource);
    }
  }
  return absl::OkStatus();
}

}  // namespace

access::Caller CallerFor(const std::string& user, const Services& services) {
  Caller caller;
  caller.user = user;
  services.sign_in->learn_user(user);
  TakeRole(services.sign_in->user_of_system(user), services.directory, caller);
  return caller;
}

absl::StatusOr<Caller> Identify(const grpc::ServerContextBase& context, Services& services,
                                Party party) {
  const std::shared_ptr<const access::Peer> peer = services.connections.Find(context.peer());
  if (peer == nullptr) {
    return MakeError(absl::StatusCode::kUnauthenticated, "UNKNOWN_CALLER",
                     "the server does not know who calls");
  }
  if (!peer->worker.empty()) {
    TY_RETURN_IF_ERROR(
        services.sign_in->removed_workers.Check(peer->worker, peer->certificate_begin));
  }
  Caller caller;
  caller.rights_revision = services.streams.revision();
  caller.user = peer->user;
  caller.address = peer->address;
  caller.worker = peer->worker;
  caller.is_host = peer->is_host;
  const bool has_token = peer->user.empty() && peer->worker.empty() && party != Party::kJoining;
  access::Peer system = *peer;
  if (has_token) {
    TY_ASSIGN_OR_RETURN(system, SignInByToken(context, *services.sign_in, caller));
    services.connections.NoteSignIn(context.peer());
  }
  TakeRole(system, services.directory, caller);
  caller.role = std::min(caller.role, caller.token_cap);
  const auto& metadata = context.client_metadata();
  if (const auto as = metadata.find(kActAsKey); as != metadata.end() && party == Party::kUser) {
    TY_RETURN_IF_ERROR(TakeOver({as->second.data(), as->second.size()}, services, caller));
  }
  return caller;
}

absl::StatusOr<Caller> Admit(const Rule& rule, const grpc::ServerContextBase& context,
                             Services& services, const std::vector<std::string>& resources,
                             bool is_trial) {
  absl::StatusOr<Caller> caller = Identify(context, services, rule.party);
  absl::Status status = caller.status();
  if (status.ok()) status = CheckRule(rule, *caller, services, resources);
  if (status.ok() && rule.is_decided_by_handler) return caller;
  const bool acts_for_other = caller.ok() && !caller->real_user.empty();
  if (status.ok() && !acts_for_other && (!rule.changes || is_trial)) return caller;
  Caller known;
  if (caller.ok()) {
    known = *caller;
  } else if (const auto peer = services.connections.Find(context.peer()); peer != nullptr) {
    known.address = peer->address;
    known.worker = peer->worker;
  }
  if (!IsRepeated(*services.sign_in, known, status)) {
    WriteDecision(rule, known, services, absl::StrJoin(resources, " "), status);
  }
  if (!status.ok()) return status;
  return caller;
}

absl::Status CheckMayChange(const Caller& caller, const Services& services, JobId job) {
  const auto view = services.board.FindJob(job);
  if (view == nullptr) return absl::OkStatus();
  if (!MaySee(caller, services, view->record)) return error::JobNotFound(JobName(job));
  const std::string& owner = view->record.submission->user;
  if (access::MayChange(caller, owner)) return absl::OkStatus();
  return NotPermitted("NOT_OWNER",
                      absl::StrCat(JobName(job), " belongs to '", owner, "', and you are '",
                                   caller.user, "'; only its owner and operators may change it"));
}

bool MaySee(const Caller& caller, const Services& services, const core::JobRecord& job) {
  return services.directory.MaySee(caller, job.submission->user, job.submission->project);
}

}  // namespace trainyard::rpc
