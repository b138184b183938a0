// Resolves what users submit, checks the options beside the spec, and finds what it refers to.
#include "server/rpc/submission.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/rpc/deterministic.h"
#include "common/spec/change.h"
#include "common/spec/diff.h"
#include "common/spec/resolve.h"
#include "server/codec/submission.h"
#include "server/rpc/code_use.h"
#include "server/rpc/convert.h"
#include "server/rpc/gate.h"
#include "server/rpc/limits.h"
#include "server/rpc/private_checks.h"
#include "server/rpc/saved_specs.h"
#include "server/rpc/start_point.h"
#include "server/verification/compare.h"

namespace trainyard::rpc {
namespace {

// Requests that mean the same have the same hash, whatever the order of their fields was.
template <typename Request>
std::string HashOfRequest(Request message) {
  message.clear_request_id();
  // A plan may be missing when the request is sent again, and does not change what it means.
  if (message.has_options()) message.mutable_options()->clear_memory_need();
  // Files that are the same may have been committed since.
  if (message.has_options()) message.mutable_options()->clear_code_origin();
  return ContentHash(DeterministicBytes(message));
}

std::shared_ptr<core::Submission> MakeSubmission(const Resolved& resolved, const StartPoint& start,
                                                 const std::string& user, Services& services) {
  auto submission = std::make_shared<core::Submission>();
  codec::TakeSpec(resolved.spec, *submission);
  submission->uid = MakeUuid(services.rng);
  submission->user = user;
  submission->spec = resolved.written_bytes;
  submission->resolved_spec = resolved.resolved_bytes;
  submission->parent_checkpoint = start.continues;
  submission->server_version = services.version;
  return submission;
}

void CheckArray(const v1::SubmitOptions& options, const v1::JobSpec& resolved,
                RequestCheck& check) {
  const int32_t size = options.array_size();
  if (size < 0 || size > kArrayJobsMax) {
    check.Add("options.array_size",
              absl::StrCat(size, " is not accepted; expected 1 to ", kArrayJobsMax));
    return;
  }
  check.NotNegative("options.array_parallel", options.array_parallel());
  if (size == 0) {
    if (options.array_parallel() > 0) {
      check.Add("options.array_parallel", "has no meaning without options.array_size");
    }
    return;
  }
  // The last element of an array has the longest name and the largest seed.
  const std::string last = absl::StrCat(resolved.name(), "-", size - 1);
  if (last.size() > JobNameBytesMax()) {
    check.Add("spec.name",
              absl::StrCat("'", last, "', the last job of the array, has ", last.size(),
                           " bytes; expected at most ", JobNameBytesMax()));
  }
  if (resolved.has_program()) return;  // its elements differ in their index
  const uint64_t seed = resolved.train().seed();
  if (seed + static_cast<uint64_t>(size - 1) > SeedMax()) {
    check.Add("spec.train.seed",
              absl::StrCat(seed, " leaves no seeds for an array of ", size, "; expected at most ",
                           SeedMax() - static_cast<uint64_t>(size - 1)));
  }
}

// Returns true if there is such a job and the caller may see it.
bool SeesJob(const access::Caller& caller, const Services& services, JobId job) {
  const auto view = services.board.FindJob(job);
  return view != nullptr && MaySee(caller, services, view->record);
}

// Reads the dependencies on other jobs, and when and where the job may start.
absl::Status TakeOptions(const v1::SubmitOptions& options, const access::Caller& caller,
                         const Services& services, RequestCheck& check,
                         core::Submission& submission) {
  const int count = options.after_size() + options.after_ok_size();
  check.MaxCount("options.after", count, kDependenciesMax);
  if (count <= kDependenciesMax) {
    for (const bool ok : {false, true}) {
      const auto& names = ok ? options.after_ok() : options.after();
      for (int i = 0; i < names.size(); ++i) {
        const std::string field = absl::StrCat(ok ? "options.after_ok[" : "options.after[", i, "]");
        submission.dependencies.push_back({check.Job(field, names[i]), ok});
      }
    }
  }
  if (options.has_begin_time()) {
    submission.not_before_us = FromTimestamp(options.begin_time());
    if (submission.not_before_us <= 0) {
      check.Add("options.begin_time", "is no time after 1970");
    }
  }
  check.Name("options.reservation", options.reservation(), /*may_be_empty=*/true);
  submission.reservation = options.reservation();
  submission.wait_for_devices = options.wait_for_devices();
  check.NotNegative("options.memory_need.host_bytes", options.memory_need().host_bytes());
  check.NotNegative("options.memory_need.gpu_bytes", options.memory_need().gpu_bytes());
  submission.demand.host_need_bytes = options.memory_need().host_bytes();
  submission.demand.gpu_need_bytes = options.memory_need().gpu_bytes();
  submission.array_size = options.array_size();
  submission.array_parallel = options.array_parallel();
  if (!check.ok()) return absl::OkStatus();
  for (const core::Dependency& dependency : submission.dependencies) {
    if (!SeesJob(caller, services, dependency.job)) {
      return error::JobNotFound(JobName(dependency.job));
    }
  }
  return absl::OkStatus();
}

// Notes of which saved spec the job is run. Code that is the same has the origin that it has there.
absl::Status TakeSavedSpec(const v1::SubmitOptions& options, const v1::JobSpec& resolved,
                           const access::Caller& caller, const Services& services,
                           RequestCheck& check, core::Submission& submission,
                           v1::CodeOrigin& origin) {
  if (options.saved_spec().empty()) return absl::OkStatus();
  if (const auto id = ParseSpecName(options.saved_spec()); !id.ok() || id->version == 0) {
    check.Add("options.saved_spec", absl::StrCat("'", options.saved_spec().substr(0, 100),
                                                 "' is no specs/NAME/versions/NUMBER"));
    return absl::OkStatus();
  }
  TY_ASSIGN_OR_RETURN(const auto saved, FindSavedSpec(options.saved_spec(), caller, services));
  submission.saved_spec = saved->name();
  if (saved->code() == resolved.program().code()) origin = saved->code_origin();
  return absl::OkStatus();
}

// Makes the submission of a spec that starts from a checkpoint of another job.
absl::StatusOr<std::shared_ptr<core::Submission>> FromStartPoint(Resolved resolved,
                                                                 const std::string& from_checkpoint,
                                                                 const access::Caller& caller,
                                                                 Services& services,
                                                                 RequestCheck& check) {
  TY_ASSIGN_OR_RETURN(const StartPoint start,
                      TakeStartPoint(from_checkpoint, caller, services, resolved.spec, check));
  resolved.resolved_bytes = resolved.spec.SerializeAsString();
  return MakeSubmission(resolved, start, caller.user, services);
}

// Decides that a clone may verify the job, and notes that it does.
absl::Status TakeVerification(const v1::CloneJobRequest& request, const core::JobRecord& original,
                              RequestCheck& check, core::Submission& submission) {
  if (!std::isfinite(request.tolerance()) || request.tolerance() < 0) {
    check.Add("tolerance",
              absl::StrCat(request.tolerance(), " is not accepted; expected 0 or more"));
  }
  if (!request.verifies()) {
    if (request.tolerance() > 0) check.Add("tolerance", "has no meaning without verifies");
    return absl::OkStatus();
  }
  // Another number of devices, or other ones, must not change what is computed.
  for (int i = 0; i < request.changes_size(); ++i) {
    const std::string& path = request.changes(i).path();
    if (path == "devices" || absl::StartsWith(path, "devices.")) continue;
    check.Add(absl::StrCat("changes[", i, "]"),
              absl::StrCat("'", path,
                           "' must not change when a job is verified; only the devices "
                           "may"));
  }
  if (!request.from_checkpoint().empty()) {
    check.Add("from_checkpoint", "must not be given: a verification starts where the job started");
  }
  if (request.options().array_size() > 0) {
    check.Add("options.array_size", "must be 0: a verification is one job");
  }
  if (!check.ok()) return absl::OkStatus();
  if (!std::holds_alternative<core::job_fsm::Succeeded>(original.state)) {
    return error::JobStateConflict(JobName(original.id), core::job_fsm::Name(original.state),
                                   "verified before it has succeeded");
  }
  submission.verifies = original.id;
  submission.verify_tolerance =
      request.tolerance() == 0 ? verification::kToleranceDefault : request.tolerance();
  return absl::OkStatus();
}

bool IsAboutData(const v1::SpecChange& change) {
  return change.path() == "data" || absl::StartsWith(change.path(), "data.");
}

}  // namespace

// Private projects take jobs of their members alone.
absl::Status CheckProject(const access::Caller& caller, const Services& services,
                          const core::Submission& submission) {
  if (services.directory.MaySubmitTo(caller, submission.project)) return absl::OkStatus();
  return MakeError(absl::StatusCode::kPermissionDenied, "NOT_A_MEMBER",
                   absl::StrCat("project '", submission.project, "' is private, and '", caller.user,
                                "' is no member; an operator adds members: trainyard projects set ",
                                submission.project, " --add ", caller.user));
}

absl::StatusOr<std::shared_ptr<core::Submission>> SubmissionOf(
    const v1::JobSpec& spec, const v1::SubmitOptions& options, const std::string& from_checkpoint,
    bool is_trial, const access::Caller& caller, Services& services, RequestCheck& check,
    Decisions& decisions) {
  std::vector<FieldViolation> violations;
  const auto resolved = services.resolve_cache->Resolve(spec, violations);
  check.Add(std::move(violations));
  // All mistakes of the spec and of the options are reported together.
  const v1::JobSpec& known = resolved == nullptr ? v1::JobSpec::default_instance() : resolved->spec;
  if (spec.has_sweep()) {
    check.Add("spec.sweep", "makes this a sweep of many jobs; begin it with `trainyard sweep run`");
  }
  CheckArray(options, known, check);
  CheckSecretsAndNotify(known, caller, services, check);
  auto submission = std::make_shared<core::Submission>();
  if (resolved != nullptr) {
    const bool may_start_elsewhere =
        !from_checkpoint.empty() || !known.from_checkpoint().empty() || known.has_init();
    TY_ASSIGN_OR_RETURN(submission,
                        may_start_elsewhere
                            ? FromStartPoint(*resolved, from_checkpoint, caller, services, check)
                            : MakeSubmission(*resolved, {}, caller.user, services));
  }
  v1::CodeOrigin origin = options.code_origin();
  TY_RETURN_IF_ERROR(TakeSavedSpec(options, known, caller, services, check, *submission, origin));
  TY_RETURN_IF_ERROR(TakeCode(known, origin, is_trial, caller, services, check, *submission));
  TY_RETURN_IF_ERROR(TakeOptions(options, caller, services, check, *submission));
  TY_RETURN_IF_ERROR(check.Take());
  TY_RETURN_IF_ERROR(decisions.Take(spec.name(), CheckProject(caller, services, *submission)));
  return submission;
}

absl::StatusOr<core::SubmitJob> SubmissionOf(const v1::CreateJobRequest& request,
                                             const access::Caller& caller, Services& services,
                                             RequestCheck& check, Decisions& decisions) {
  check.MaxBytes("request_id", request.request_id(), kRequestIdBytesMax);
  TY_ASSIGN_OR_RETURN(const auto submission,
                      SubmissionOf(request.spec(), request.options(), request.from_checkpoint(),
                                   request.validate_only(), caller, services, check, decisions));
  core::SubmitJob input{submission, request.request_id(), "", UserActor(caller.user)};
  if (!request.request_id().empty()) input.request_hash = HashOf(request);
  return input;
}

absl::StatusOr<Clone> CloneOf(const v1::CloneJobRequest& request, const runtime::JobView& original,
                              const access::Caller& caller, Services& services, RequestCheck& check,
                              Decisions& decisions) {
  check.MaxBytes("request_id", request.request_id(), kRequestIdBytesMax);
  check.MaxCount("changes", request.changes_size(), kChangesMax);
  const v1::JobSpec before = ResolvedSpecOf(original.record);
  v1::JobSpec after = before;
  // The addresses are those of the one who wrote them.
  if (caller.user != original.record.submission->user) after.clear_notify();
  for (const v1::SpecChange& change : request.changes()) {
    const absl::Status status = spec::ApplyChange(after, change.path(), change.value_json());
    for (const FieldViolation& violation : GetFieldViolations(status)) {
      check.Add(absl::StrCat("spec.", violation.field), violation.description);
    }
  }
  const bool changes_data =
      std::any_of(request.changes().begin(), request.changes().end(), IsAboutData);
  // A digest of other data than the clone's would only make it fail.
  if (changes_data && after.data().digest() == before.data().digest()) {
    after.mutable_data()->clear_digest();
  }
  Resolved resolved;
  check.Add(spec::ResolveInto(after, resolved.spec));
  StartPoint start;
  if (check.ok()) {
    TY_ASSIGN_OR_RETURN(
        start, TakeStartPoint(request.from_checkpoint(), caller, services, resolved.spec, check));
  }
  CheckArray(request.options(), resolved.spec, check);
  CheckSecretsAndNotify(resolved.spec, caller, services, check);

  Clone clone;
  for (const spec::FieldDifference& difference : spec::DiffSpecs(before, resolved.spec)) {
    clone.differences.push_back(ToProto(difference));
  }
  // The digest is set after the comparison, because it only writes down what the original did and
  // is no difference.
  const std::string& digest = original.record.data_digest;
  if (!changes_data && !digest.empty() && resolved.spec.data().digest().empty()) {
    resolved.spec.mutable_data()->set_digest(digest);
  }
  resolved.written_bytes = after.SerializeAsString();
  resolved.resolved_bytes = resolved.spec.SerializeAsString();
  auto submission = MakeSubmission(resolved, start, caller.user, services);
  // Code that is the same has the same origin, wherever the clone is made.
  v1::CodeOrigin origin = request.options().code_origin();
  if (resolved.spec.program().code() == before.program().code()) {
    origin.ParseFromString(original.record.submission->code_origin);
  }
  TY_RETURN_IF_ERROR(TakeCode(resolved.spec, origin, request.validate_only(), caller, services,
                              check, *submission));
  TY_RETURN_IF_ERROR(TakeOptions(request.options(), caller, services, check, *submission));
  TY_RETURN_IF_ERROR(TakeVerification(request, original.record, check, *submission));
  TY_RETURN_IF_ERROR(check.Take());
  TY_RETURN_IF_ERROR(decisions.Take(CheckProject(caller, services, *submission)));
  submission->cloned_from = original.record.id;
  clone.input = {submission, request.request_id(), HashOf(request), UserActor(caller.user)};
  return clone;
}

std::string HashOf(const v1::CreateJobRequest& request) {
  return HashOfRequest(request);
}

std::string HashOf(const v1::CloneJobRequest& request) {
  return HashOfRequest(request);
}

std::string HashOf(const v1::CreateSweepRequest& request) {
  return HashOfRequest(request);
}

v1::Job PreviewOf(const core::Submission& submission, const v1::Explanation& explanation) {
  v1::Job job;
  *job.mutable_spec() = SpecOf(submission);
  *job.mutable_resolved_spec() = ResolvedSpecOf(submission);
  codec::SetOptions(submission, job);
  *job.mutable_explanation() = explanation;
  *job.mutable_queue_reasons() = explanation.reasons();
  return job;
}

}  // namespace trainyard::rpc
