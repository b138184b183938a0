#include "server/rpc/submission.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/spec/change.h"
#include "common/spec/diff.h"
#include "common/spec/interval.h"
#include "common/spec/resolve.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "server/rpc/convert.h"
#include "server/rpc/limits.h"

namespace trainyard::rpc {
namespace {

int64_t Microseconds(const google::protobuf::Duration& duration) {
  return absl::ToInt64Microseconds(spec::FromProto(duration));
}

// Equal for requests that mean the same, whatever order their fields came in.
std::string HashOf(const google::protobuf::Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return ContentHash(bytes);
}

std::shared_ptr<core::Submission> MakeSubmission(const v1::JobSpec& spec,
                                                 const v1::JobSpec& resolved,
                                                 const std::string& user, Services& services) {
  auto submission = std::make_shared<core::Submission>();
  submission->uid = MakeUuid(services.rng);
  submission->name = resolved.name();
  submission->user = user;
  submission->spec = spec.SerializeAsString();
  submission->resolved_spec = resolved.SerializeAsString();
  submission->demand = {resolved.devices().count(), resolved.devices().type(),
                        resolved.devices().mixed()};
  submission->priority = resolved.priority();
  submission->max_retries = resolved.max_retries();
  submission->time_limit_us = Microseconds(resolved.time_limit());
  submission->disconnect_keep_us = Microseconds(resolved.on_disconnect().keep());
  submission->checkpoints_kept = resolved.checkpoint().keep().last();
  submission->server_version = services.version;
  return submission;
}

// The checkpoint that a new job starts from; nullopt for none.
absl::StatusOr<std::optional<core::CheckpointRef>> ParentOf(const std::string& name,
                                                            const runtime::Board& board,
                                                            RequestCheck& check) {
  if (name.empty()) return std::nullopt;
  const CheckpointId id = check.Checkpoint("from_checkpoint", name);
  if (!check.ok()) return std::nullopt;
  const core::CheckpointRef parent = {id.job, id.step};
  if (board.FindCheckpoint(parent) == nullptr) return error::CheckpointNotFound(name);
  return parent;
}

// Weights fit only the model that they were trained for: every field that differs is named.
void CheckParentModel(const std::optional<core::CheckpointRef>& parent, const v1::JobSpec& resolved,
                      const runtime::Board& board, RequestCheck& check) {
  const auto job = parent.has_value() ? board.FindJob(parent->job) : nullptr;
  if (job == nullptr) return;
  const v1::JobSpec trained = ParseSpec(job->record.submission->resolved_spec);
  for (const auto& difference : spec::DiffSpecs(trained.model(), resolved.model())) {
    const auto shown = [](const std::string& json) { return json.empty() ? "unset" : json; };
    check.Add(absl::StrCat("spec.model.", difference.path),
              absl::StrCat("is ", shown(difference.right_json), ", but checkpoint '",
                           CheckpointName(parent->job, parent->step), "' has ",
                           shown(difference.left_json)));
  }
}

bool IsAboutData(const v1::SpecChange& change) {
  return change.path() == "data" || absl::StartsWith(change.path(), "data.");
}

}  // namespace

absl::StatusOr<core::SubmitJob> SubmissionOf(const v1::CreateJobRequest& request,
                                             const std::string& user, Services& services,
                                             RequestCheck& check) {
  check.MaxBytes("request_id", request.request_id(), kRequestIdBytesMax);
  v1::JobSpec resolved;
  check.Add(spec::ResolveInto(request.spec(), resolved));
  TY_ASSIGN_OR_RETURN(const auto parent,
                      ParentOf(request.from_checkpoint(), services.board, check));
  CheckParentModel(parent, resolved, services.board, check);
  TY_RETURN_IF_ERROR(check.Take());
  auto submission = MakeSubmission(request.spec(), resolved, user, services);
  submission->parent_checkpoint = parent;
  v1::CreateJobRequest hashed = request;
  hashed.clear_request_id();
  return core::SubmitJob{submission, request.request_id(), HashOf(hashed), UserActor(user)};
}

absl::StatusOr<Clone> CloneOf(const v1::CloneJobRequest& request, const runtime::JobView& original,
                              const std::string& user, Services& services, RequestCheck& check) {
  check.MaxBytes("request_id", request.request_id(), kRequestIdBytesMax);
  check.MaxCount("changes", request.changes_size(), kChangesMax);
  const v1::JobSpec before = ParseSpec(original.record.submission->resolved_spec);
  v1::JobSpec after = before;
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
  v1::JobSpec resolved;
  check.Add(spec::ResolveInto(after, resolved));
  TY_ASSIGN_OR_RETURN(const auto parent,
                      ParentOf(request.from_checkpoint(), services.board, check));
  CheckParentModel(parent, resolved, services.board, check);
  TY_RETURN_IF_ERROR(check.Take());

  Clone clone;
  for (const spec::FieldDifference& difference : spec::DiffSpecs(before, resolved)) {
    clone.differences.push_back(ToProto(difference));
  }
  // After the comparison: it is what the original did, written down, and no difference.
  if (!changes_data && resolved.data().digest().empty()) {
    resolved.mutable_data()->set_digest(original.record.data_digest);
  }
  auto submission = MakeSubmission(after, resolved, user, services);
  submission->parent_checkpoint = parent;
  submission->cloned_from = original.record.id;
  v1::CloneJobRequest hashed = request;
  hashed.clear_request_id();
  clone.input = {submission, request.request_id(), HashOf(hashed), UserActor(user)};
  return clone;
}

v1::Job PreviewOf(const core::Submission& submission) {
  v1::Job job;
  *job.mutable_spec() = ParseSpec(submission.spec);
  *job.mutable_resolved_spec() = ParseSpec(submission.resolved_spec);
  job.mutable_provenance()->set_server_version(submission.server_version);
  if (submission.cloned_from.value != 0) {
    job.mutable_provenance()->set_cloned_from(JobName(submission.cloned_from));
  }
  if (submission.parent_checkpoint.has_value()) {
    job.mutable_provenance()->set_parent_checkpoint(
        CheckpointName(submission.parent_checkpoint->job, submission.parent_checkpoint->step));
  }
  job.set_user(submission.user);
  return job;
}

}  // namespace trainyard::rpc
