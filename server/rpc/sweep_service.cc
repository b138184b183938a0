// Checks sweeps that users begin, and answers from the keeper of all sweeps.
#include "server/rpc/sweep_service.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"
#include "common/spec/resolve.h"
#include "server/rpc/answers.h"
#include "server/rpc/decisions.h"
#include "server/rpc/limits.h"
#include "server/rpc/submission.h"
#include "server/sweeps/keeper.h"
#include "server/sweeps/plan.h"

namespace trainyard::rpc {
namespace {

using core::sweeping::EntryKind;

// The trials whose values a dry run shows.
constexpr int32_t kTrialsShown = 20;

absl::Status NoSweeps() {
  return absl::UnavailableError("this server keeps no sweeps");
}

// Returns how many jobs of this spec the pool has room for at a time, if it were empty.
int32_t RoomFor(const v1::JobSpec& spec, const core::Yard& yard) {
  int32_t devices = 0;
  const std::string& type = spec.devices().type();
  for (const auto& [name, worker] : yard.snapshot().workers) {
    for (const core::DeviceRecord& device : worker.devices) {
      if (type.empty() || device.type == type) ++devices;
    }
  }
  return devices / std::max(spec.devices().count(), 1);
}

void CheckOptions(const v1::SubmitOptions& options, RequestCheck& check) {
  if (options.after_size() + options.after_ok_size() > 0) {
    check.Add("options.after", "is not accepted: the jobs of a sweep wait for no others");
  }
  if (options.array_size() > 0 || options.array_parallel() > 0) {
    check.Add("options.array_size", "is not accepted: a sweep is no array");
  }
}

// Shows a sweep that was only validated, with the values of its first trials.
void Preview(const v1::JobSpec& spec, v1::Sweep& shown) {
  const v1::SweepSpec& sweep = spec.sweep();
  const core::sweeping::Definition definition = sweeps::DefinitionOf(sweep);
  const sweep::Space space = sweeps::SpaceOf(sweep);
  shown.set_title(spec.name());
  shown.set_project(spec.project());
  *shown.mutable_spec() = spec;
  shown.set_trials_total(definition.trials);
  shown.set_concurrent(definition.concurrent);
  shown.set_best_trial(-1);
  for (int32_t rung = 0; rung < core::sweeping::RungCount(definition); ++rung) {
    shown.add_rungs(core::sweeping::RungShare(definition, rung));
  }
  for (int32_t i = 0; i < std::min(definition.trials, kTrialsShown); ++i) {
    v1::SweepTrial& trial = *shown.add_trials();
    trial.set_index(i);
    trial.set_copied_from(-1);
    for (const auto& [path, value] : sweeps::ValuesOf(sweep, space, i)) {
      (*trial.mutable_values())[path] = value;
    }
  }
}

// Makes the submission of the first trial, so that what is wrong with all of them is found at once.
absl::StatusOr<std::shared_ptr<core::Submission>> CheckFirstTrial(
    const v1::JobSpec& spec, const v1::CreateSweepRequest& request, const access::Caller& caller,
    Services& services, RequestCheck& check, Decisions& decisions) {
  const sweep::Values values = sweeps::ValuesOf(spec.sweep(), sweeps::SpaceOf(spec.sweep()), 0);
  TY_ASSIGN_OR_RETURN(const v1::JobSpec first, sweeps::SpecOfTrial(spec, 0, values));
  return SubmissionOf(first, request.options(), "", request.validate_only(), caller, services,
                      check, decisions);
}

}  // namespace

absl::StatusOr<core::SubmitJob> SubmissionOfTrial(const store::SweepRecord& sweep,
                                                  const sweeps::NewJob& job, Services& services) {
  const access::Caller owner = CallerFor(sweep.user, services);
  const access::Rule& rule = access::RuleOf("SweepService/CreateSweep");
  if (owner.role < rule.least) {
    return absl::PermissionDeniedError(
        absl::StrCat("'", sweep.user, "' may not submit jobs any more"));
  }
  TY_ASSIGN_OR_RETURN(v1::JobSpec spec,
                      sweeps::SpecOfTrial(sweep.spec, job.trial, job.begin.values));
  const std::string from =
      job.begin.from.has_value() ? CheckpointName(job.begin.from->job, job.begin.from->step) : "";
  RequestCheck check;
  Decisions decisions(rule, owner, services, {SweepName(sweep.number)});
  TY_ASSIGN_OR_RETURN(const auto submission,
                      SubmissionOf(spec, sweep.options, from, /*is_trial=*/false, owner, services,
                                   check, decisions));
  submission->trial = TrialName(sweep.number, job.trial);
  // The same job is asked for again if the server ends before it has noted this one.
  const std::string request =
      absl::StrCat("sweep/", sweep.uid, "/", job.trial, "/", job.generation);
  return core::SubmitJob{submission, request, request, UserActor(owner.user)};
}

SweepServiceImpl::SweepServiceImpl(Services& services) : services_(services) {}

absl::StatusOr<int64_t> SweepServiceImpl::Find(const access::Caller& caller,
                                               const std::string& name, bool to_change) const {
  if (services_.sweeps == nullptr) return NoSweeps();
  TY_ASSIGN_OR_RETURN(const int64_t number, ParseSweepName(name));
  const auto record = services_.sweeps->Find(number);
  if (!record.ok()) return record.status();
  if (!services_.directory.MaySee(caller, record->user, record->spec.project())) {
    return error::SweepNotFound(number);
  }
  if (to_change && !access::MayChange(caller, record->user)) {
    return MakeError(absl::StatusCode::kPermissionDenied, "NOT_OWNER",
                     absl::StrCat(name, " belongs to '", record->user, "', and you are '",
                                  caller.user, "'; ask the owner or an operator"));
  }
  return number;
}

grpc::ServerUnaryReactor* SweepServiceImpl::CreateSweep(const access::Caller& caller,
                                                        grpc::CallbackServerContext* context,
                                                        const v1::CreateSweepRequest* request,
                                                        v1::Sweep* response) {
  if (services_.sweeps == nullptr) return Finished(context, NoSweeps());
  RequestCheck check;
  Decisions decisions(access::RuleOf("SweepService/CreateSweep"), caller, services_,
                      {request->spec().name()}, request->validate_only());
  check.MaxBytes("request_id", request->request_id(), kRequestIdBytesMax);
  CheckOptions(request->options(), check);
  if (!request->spec().has_sweep()) {
    check.Add("spec.sweep", "must be given: the fields that are searched, and the objective");
  }
  auto record = std::make_shared<store::SweepRecord>();
  check.Add(spec::ResolveInto(request->spec(), record->spec));
  if (!check.ok()) return Refused(context, check);
  v1::SweepSpec first = record->spec.sweep();
  sweeps::ChooseOpen(/*room=*/1, first);
  v1::JobSpec with_first = record->spec;
  *with_first.mutable_sweep() = first;
  const auto submission =
      CheckFirstTrial(with_first, *request, caller, services_, check, decisions);
  decisions.Write();
  if (!submission.ok()) return Finished(context, submission.status());
  record->user = caller.user;
  record->uid = MakeUuid(services_.rng);
  record->create_us = absl::ToUnixMicros(services_.sign_in->clock->Now());
  record->request_id = request->request_id();
  record->request_hash = HashOf(*request);
  record->options = request->options();
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const auto create = [this, record, request, response]() -> absl::Status {
    if (request->validate_only()) {
      Preview(record->spec, *response);
      return absl::OkStatus();
    }
    TY_ASSIGN_OR_RETURN(const int64_t number, services_.sweeps->Create(*record));
    TY_ASSIGN_OR_RETURN(*response, services_.sweeps->Show(number));
    return absl::OkStatus();
  };
  services_.runtime.Read(
      [this, record, create, reactor, trial = *submission](absl::StatusOr<const core::Yard*> yard) {
        if (!yard.ok()) return reactor->Finish(ToGrpcStatus(yard.status()));
        const auto admitted = (*yard)->Admit(*trial, services_.runtime.Now());
        if (!admitted.ok()) return reactor->Finish(ToGrpcStatus(admitted.status()));
        sweeps::ChooseOpen(RoomFor(record->spec, **yard), *record->spec.mutable_sweep());
        const absl::Status posted =
            changes_.TryPost([create, reactor] { reactor->Finish(ToGrpcStatus(create())); });
        if (!posted.ok()) reactor->Finish(ToGrpcStatus(posted));
      });
  return reactor;
}

grpc::ServerUnaryReactor* SweepServiceImpl::GetSweep(const access::Caller& caller,
                                                     grpc::CallbackServerContext* context,
                                                     const v1::GetSweepRequest* request,
                                                     v1::Sweep* response) {
  return FinishAfter(
      context, services_.executor, [this, caller, request, response]() -> absl::Status {
        TY_ASSIGN_OR_RETURN(const int64_t number,
                            Find(caller, request->name(), /*to_change=*/false));
        TY_ASSIGN_OR_RETURN(*response, services_.sweeps->Show(
                                           number, request->with_decisions()
                                                       ? std::optional(request->decisions_after())
                                                       : std::nullopt));
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* SweepServiceImpl::ListSweeps(const access::Caller& caller,
                                                       grpc::CallbackServerContext* context,
                                                       const v1::ListSweepsRequest* request,
                                                       v1::ListSweepsResponse* response) {
  if (services_.sweeps == nullptr) return Finished(context, NoSweeps());
  RequestCheck check;
  const int page_size =
      check.PageSize("page_size", request->page_size(), kSpecsPageDefault, kSpecsPageMax);
  const int64_t before = check.PageToken("page_token", request->page_token());
  check.MaxBytes("user", request->user(), kUserBytesMax);
  if (!check.ok()) return Refused(context, check);
  return FinishAfter(context, services_.executor,
                     [this, caller, before, page_size, request, response] {
                       size_t bytes = 0;
                       services_.sweeps->ForEach(before, [&](const v1::Sweep& sweep) {
                         if (!request->user().empty() && sweep.user() != request->user())
                           return true;
                         if (!services_.directory.MaySee(caller, sweep.user(), sweep.project()))
                           return true;
                         bytes += sweep.ByteSizeLong();
                         if (response->sweeps_size() == page_size ||
                             (bytes > kPageBytesMax && response->sweeps_size() > 0)) {
                           response->set_next_page_token(
                               absl::StrCat(*ParseSweepName(response->sweeps().rbegin()->name())));
                           return false;
                         }
                         *response->add_sweeps() = sweep;
                         return true;
                       });
                       return absl::OkStatus();
                     });
}

absl::Status SweepServiceImpl::Ask(const std::string& name, const std::vector<EntryKind>& kinds,
                                   const access::Caller& caller, v1::Sweep& response) {
  TY_ASSIGN_OR_RETURN(const int64_t sweep, Find(caller, name, /*to_change=*/true));
  for (const EntryKind kind : kinds) {
    TY_RETURN_IF_ERROR(services_.sweeps->Ask(sweep, kind, caller.user));
  }
  TY_ASSIGN_OR_RETURN(response, services_.sweeps->Show(sweep));
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* SweepServiceImpl::StopSweep(const access::Caller& caller,
                                                      grpc::CallbackServerContext* context,
                                                      const v1::StopSweepRequest* request,
                                                      v1::Sweep* response) {
  const EntryKind kind =
      request->cancel() ? EntryKind::kCancelRequested : EntryKind::kStopRequested;
  return FinishAfter(context, changes_, [this, kind, caller, request, response] {
    return Ask(request->name(), {kind}, caller, *response);
  });
}

grpc::ServerUnaryReactor* SweepServiceImpl::ResumeSweep(const access::Caller& caller,
                                                        grpc::CallbackServerContext* context,
                                                        const v1::ResumeSweepRequest* request,
                                                        v1::Sweep* response) {
  std::vector<EntryKind> kinds = {EntryKind::kResumeRequested};
  if (request->retry_failed()) kinds.insert(kinds.begin(), EntryKind::kRetryRequested);
  return FinishAfter(context, changes_, [this, kinds, caller, request, response] {
    return Ask(request->name(), kinds, caller, *response);
  });
}

grpc::ServerUnaryReactor* SweepServiceImpl::DeleteSweep(const access::Caller& caller,
                                                        grpc::CallbackServerContext* context,
                                                        const v1::DeleteSweepRequest* request,
                                                        v1::DeleteSweepResponse* /*response*/) {
  return FinishAfter(context, changes_, [this, caller, request]() -> absl::Status {
    TY_ASSIGN_OR_RETURN(const int64_t number, Find(caller, request->name(), /*to_change=*/true));
    return services_.sweeps->Delete(number);
  });
}

}  // namespace trainyard::rpc
