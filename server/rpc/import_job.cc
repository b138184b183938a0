// Everything that only means something on the server from which the job comes is left out here:
// names of other jobs, secrets, addresses.
#include "server/rpc/import_job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/hash.h"
#include "common/base/report_limits.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/rpc/deterministic.h"
#include "common/spec/resolve.h"
#include "server/codec/submission.h"
#include "server/codec/time.h"
#include "server/rpc/code_use.h"
#include "server/rpc/convert_agent.h"
#include "server/rpc/limits.h"
#include "server/rpc/submission.h"

namespace trainyard::rpc {
namespace {

namespace job_fsm = core::job_fsm;
namespace attempt_fsm = core::attempt_fsm;

// Texts that are shown, such as versions.
constexpr size_t kOriginTextBytesMax = 200;
constexpr size_t kEventTypeBytesMax = 64;
constexpr size_t kEventMessageBytesMax = kFailureMessageBytesMax;

int64_t TimeOf(const google::protobuf::Timestamp& time) {
  return std::max<int64_t>(codec::FromTimestamp(time), 0);
}

// Finds the value of the core that has the word of the API without its prefix.
template <typename Value>
Value WordOf(const std::string& field, absl::string_view prefix, absl::string_view word,
             RequestCheck& check) {
  Value value{};
  absl::string_view text = word;
  if (!absl::ConsumePrefix(&text, prefix) || !core::FromText(text, value).ok()) {
    check.Add(field, absl::StrCat("'", word, "' is not accepted here"));
  }
  return value;
}

core::Failure FailureFrom(const v1::Failure& failure, const std::string& field,
                          RequestCheck& check) {
  core::Failure result;
  if (failure.failure_class() != v1::FAILURE_CLASS_UNSPECIFIED) {
    result.failure_class =
        WordOf<core::FailureClass>(field + ".failure_class", "FAILURE_CLASS_",
                                   v1::FailureClass_Name(failure.failure_class()), check);
  } else {
    result.failure_class = core::FailureClass::kTransient;
  }
  result.reason = PlainText(failure.reason(), kFailureReasonBytesMax);
  result.message = PlainText(failure.message(), kFailureMessageBytesMax);
  result.exit_code = failure.exit_code();
  return result;
}

core::JobState StateFrom(const v1::Job& job, RequestCheck& check) {
  switch (job.state()) {
    case v1::JOB_STATE_SUCCEEDED:
      return job_fsm::Succeeded{};
    case v1::JOB_STATE_FAILED:
      return job_fsm::Failed{FailureFrom(job.failure(), "job.failure", check)};
    case v1::JOB_STATE_CANCELLED:
      return job_fsm::Cancelled{};
    default:
      check.Add("job.state", absl::StrCat(v1::JobState_Name(job.state()),
                                          " is no state of a job that has ended"));
      return job_fsm::Cancelled{};
  }
}

core::AttemptState StateFrom(const v1::Attempt& attempt, const std::string& field,
                             RequestCheck& check) {
  switch (attempt.state()) {
    case v1::ATTEMPT_STATE_SUCCEEDED:
      return attempt_fsm::Succeeded{};
    case v1::ATTEMPT_STATE_FAILED:
      return attempt_fsm::Failed{FailureFrom(attempt.failure(), field + ".failure", check)};
    case v1::ATTEMPT_STATE_PREEMPTED:
      return attempt_fsm::Preempted{};
    case v1::ATTEMPT_STATE_CANCELLED:
      return attempt_fsm::Cancelled{};
    case v1::ATTEMPT_STATE_LOST:
      return attempt_fsm::Lost{FailureFrom(attempt.failure(), field + ".failure", check)};
    default:
      check.Add(field + ".state", absl::StrCat(v1::AttemptState_Name(attempt.state()),
                                               " is no state of an attempt that has ended"));
      return attempt_fsm::Cancelled{};
  }
}

core::RankPlacement PlacementFrom(const v1::RankPlacement& placement, const std::string& field,
                                  RequestCheck& check) {
  core::RankPlacement rank;
  rank.rank = placement.rank();
  rank.worker = check.Worker(field + ".worker", placement.worker());
  rank.device = PlainText(placement.device(), kNameBytesMax);
  check.NotNegative(field + ".cpus", placement.cpus());
  check.NotNegative(field + ".memory_bytes", placement.memory_bytes());
  rank.held = {placement.cpus(), placement.memory_bytes()};
  return rank;
}

core::AttemptRecord AttemptFrom(const v1::Attempt& attempt, const std::string& field,
                                int32_t last_number, RequestCheck& check) {
  core::AttemptRecord record;
  record.id.number = check.Attempt(field + ".name", attempt.name()).number;
  if (record.id.number <= last_number) {
    check.Add(field + ".name", absl::StrCat("'", attempt.name().substr(0, 64),
                                            "' does not come after the one before"));
  }
  record.fencing_token = record.id.number;
  record.state = StateFrom(attempt, field, check);
  check.MaxCount(field + ".placement", attempt.placement_size(), RanksMax());
  for (int i = 0; i < attempt.placement_size() && i < RanksMax(); ++i) {
    const std::string place = absl::StrCat(field, ".placement[", i, "]");
    record.ranks.push_back(PlacementFrom(attempt.placement(i), place, check));
    if (record.ranks.back().rank != i) {
      check.Add(place + ".rank", absl::StrCat(attempt.placement(i).rank(), " is there; expected ",
                                              i, ", since the ranks come in their order"));
    }
  }
  record.create_us = TimeOf(attempt.create_time());
  record.start_us = TimeOf(attempt.start_time());
  record.end_us = TimeOf(attempt.end_time());
  record.isolation = attempt.isolation() == v1::ISOLATION_UNSPECIFIED
                         ? core::Isolation::kUnspecified
                         : WordOf<core::Isolation>(field + ".isolation", "ISOLATION_",
                                                   v1::Isolation_Name(attempt.isolation()), check);
  return record;
}

bool IsEventType(absl::string_view type) {
  return !type.empty() && type.size() <= kEventTypeBytesMax &&
         std::all_of(type.begin(), type.end(),
                     [](char c) { return (c >= 'A' && c <= 'Z') || c == '_'; });
}

core::EventRecord EventFrom(const v1::Event& event, const std::string& field, RequestCheck& check) {
  core::EventRecord record;
  if (const auto attempt = ParseAttemptName(event.resource()); attempt.ok()) {
    record.resource = absl::StrCat("/attempts/", attempt->number);
  } else {
    check.Job(field + ".resource", event.resource());
  }
  record.type = event.type();
  if (!IsEventType(event.type())) check.Add(field + ".type", "is no type of an event");
  // The actor is a claim of the file. It stands in the message, so that nobody seems to have acted
  // here who has not.
  record.message = PlainText(
      absl::StrCat(PlainText(event.actor(), kOriginTextBytesMax),
                   event.actor().empty() || event.message().empty() ? "" : ": ", event.message()),
      kEventMessageBytesMax);
  record.time_us = TimeOf(event.time());
  return record;
}

// Takes out of a spec what points to things of its server, and says so.
void DropReferences(v1::JobSpec& spec, std::vector<std::string>& warnings) {
  const auto warn = [&warnings](const auto&... words) {
    std::string sentence = absl::StrCat(words...);
    if (std::find(warnings.begin(), warnings.end(), sentence) == warnings.end()) {
      warnings.push_back(std::move(sentence));
    }
  };
  spec.clear_notify();
  if (!spec.from_checkpoint().empty()) {
    warn("it continued from a checkpoint of another job there, and a clone begins anew");
    spec.clear_from_checkpoint();
  }
  if (!spec.init().job().empty()) {
    warn("it began with the weights of another job there, and a clone begins with random ones");
    spec.clear_init();
  }
  if (!spec.program().secrets().empty()) {
    warn(
        "its program had secrets there, and a clone has none; add yours with --set "
        "program.secrets=...");
    spec.mutable_program()->clear_secrets();
  }
}

// Adds the violations of a spec, whose paths begin with "spec.". Returns it with all its defaults:
// a spec that was resolved elsewhere is as it was, unless its server was an older one.
v1::JobSpec CheckSpec(const std::string& field, const v1::JobSpec& spec, RequestCheck& check) {
  v1::JobSpec resolved;
  for (const FieldViolation& violation : spec::ResolveInto(spec, resolved)) {
    absl::string_view path = violation.field;
    absl::ConsumePrefix(&path, "spec.");
    check.Add(absl::StrCat(field, ".", path), violation.description);
  }
  return resolved;
}

std::string HashOfImport(v1::ImportJobRequest request) {
  request.clear_request_id();
  return ContentHash(DeterministicBytes(request));
}

std::string OriginOf(const v1::Job& job) {
  const auto text = [](const std::string& value) { return PlainText(value, kOriginTextBytesMax); };
  v1::ImportOrigin origin;
  origin.set_job(text(job.name()));
  origin.set_uid(text(job.uid()));
  origin.set_user(text(job.user()));
  origin.set_server_version(text(job.provenance().server_version()));
  if (TimeOf(job.create_time()) > 0) *origin.mutable_create_time() = job.create_time();
  return origin.SerializeAsString();
}

// Reads what stands in the job itself.
void TakeJob(const v1::Job& job, core::JobRecord& record, RequestCheck& check) {
  record.state = StateFrom(job, check);
  if (job.stop_reason() != v1::STOP_REASON_UNSPECIFIED) {
    record.stop_reason = WordOf<core::StopReason>("job.stop_reason", "STOP_REASON_",
                                                  v1::StopReason_Name(job.stop_reason()), check);
  }
  check.NotNegative("job.retries", job.retries());
  check.NotNegative("job.preemptions", job.preemptions());
  record.retries = job.retries();
  record.preemptions = job.preemptions();
  record.start_us = TimeOf(job.start_time());
  record.end_us = TimeOf(job.end_time());
  if (record.end_us == 0) check.Add("job.end_time", "must be given");
  check.NotNegative("job.progress.step", job.progress().step());
  record.progress = FromProto(job.progress(), "job.progress", check);
  for (const auto& [name, value] : job.final_metrics()) {
    if (record.metrics.values.size() == kLastMetricsMax) break;
    check.MaxBytes("job.final_metrics", name, kMetricNameBytesMax);
    record.metrics.values[name] = value;
  }
  const v1::Provenance& provenance = job.provenance();
  check.MaxBytes("job.provenance.data_digest", provenance.data_digest(), kNameBytesMax);
  check.MaxBytes("job.provenance.model_digest", provenance.model_digest(), kNameBytesMax);
  record.data_digest = provenance.data_digest();
  record.model_digest = provenance.model_digest();
  record.worker_version = PlainText(provenance.worker_version(), kOriginTextBytesMax);
}

void TakeHistory(const v1::ImportJobRequest& request, core::ImportedJob& imported,
                 RequestCheck& check) {
  check.MaxCount("attempts", request.attempts_size(), kImportedAttemptsMax);
  for (int i = 0; i < request.attempts_size() && i < kImportedAttemptsMax; ++i) {
    const int32_t last = imported.attempts.empty() ? 0 : imported.attempts.back().id.number;
    imported.attempts.push_back(
        AttemptFrom(request.attempts(i), absl::StrCat("attempts[", i, "]"), last, check));
  }
  if (!imported.attempts.empty()) {
    imported.job.attempt = imported.attempts.back().id.number;
    imported.job.fencing_token = imported.attempts.back().fencing_token;
  } else {
    imported.job.metrics.values.clear();  // a job that never ran has none
  }
  check.MaxCount("events", request.events_size(), kImportedEventsMax);
  for (int i = 0; i < request.events_size() && i < kImportedEventsMax; ++i) {
    imported.events.push_back(EventFrom(request.events(i), absl::StrCat("events[", i, "]"), check));
  }
}

}  // namespace

absl::StatusOr<Import> ImportOf(const v1::ImportJobRequest& request, const access::Caller& caller,
                                Services& services, RequestCheck& check, Decisions& decisions) {
  check.MaxBytes("request_id", request.request_id(), kRequestIdBytesMax);
  Import result;
  v1::JobSpec written = request.job().spec();
  v1::JobSpec resolved = request.job().resolved_spec();
  DropReferences(resolved, result.warnings);
  DropReferences(written, result.warnings);
  resolved = CheckSpec("job.resolved_spec", resolved, check);
  // A mistake in one is mostly the same mistake in the other.
  if (check.ok()) (void)CheckSpec("job.spec", written, check);
  auto imported = std::make_shared<core::ImportedJob>();
  TakeJob(request.job(), imported->job, check);
  TakeHistory(request, *imported, check);
  auto submission = std::make_shared<core::Submission>();
  if (check.ok()) codec::TakeSpec(resolved, *submission);
  submission->uid = MakeUuid(services.rng);
  submission->user = caller.user;
  submission->spec = written.SerializeAsString();
  submission->resolved_spec = resolved.SerializeAsString();
  submission->import_origin = OriginOf(request.job());
  // It must not be empty, since that would mean that the job was submitted here.
  check.NotEmpty("job.name", request.job().name());
  submission->server_version =
      PlainText(request.job().provenance().server_version(), kOriginTextBytesMax);
  TY_RETURN_IF_ERROR(TakeCode(resolved, request.job().provenance().code(), request.validate_only(),
                              caller, services, check, *submission));
  TY_RETURN_IF_ERROR(check.Take());
  TY_RETURN_IF_ERROR(decisions.Take(resolved.name(), CheckProject(caller, services, *submission)));
  imported->job.submission = std::move(submission);
  result.input.imported = std::move(imported);
  result.input.actor = UserActor(caller.user);
  if (!request.request_id().empty()) {
    // The client makes its id of the file's content, and others may import the same file.
    result.input.request_id = absl::StrCat("import/", caller.user, "/", request.request_id());
    result.input.request_hash = HashOfImport(request);
  }
  return result;
}

}  // namespace trainyard::rpc
