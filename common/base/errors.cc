// Implements named errors. Reason, violations, metadata and delay are payloads of a status, which
// code that does not know them passes on unchanged.
#include "common/base/errors.h"

#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace trainyard {
namespace {

constexpr char kReasonUrl[] = "trainyard/reason";
constexpr char kViolationsUrl[] = "trainyard/violations";
constexpr char kMetadataUrl[] = "trainyard/metadata";
constexpr char kRetryDelayUrl[] = "trainyard/retry_delay_us";

// A payload is a string of bytes, and this library does not link protobuf. So pairs of texts are
// written one after the other, each text behind its length: `3:job`. Texts may contain any bytes,
// since violations quote what users wrote.
void AppendText(absl::string_view text, std::string& packed) {
  absl::StrAppend(&packed, text.size(), ":", text);
}

// Takes the first text off `packed`. Returns false if there is none.
bool TakeText(absl::string_view& packed, std::string& text) {
  const size_t colon = packed.find(':');
  size_t size = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(packed.substr(0, colon), &size) ||
      size > packed.size() - colon - 1) {
    return false;
  }
  text = std::string(packed.substr(colon + 1, size));
  packed.remove_prefix(colon + 1 + size);
  return true;
}

absl::Cord PackPairs(const std::vector<std::pair<absl::string_view, absl::string_view>>& pairs) {
  std::string packed;
  for (const auto& [first, second] : pairs) {
    AppendText(first, packed);
    AppendText(second, packed);
  }
  return absl::Cord(packed);
}

std::vector<std::pair<std::string, std::string>> UnpackPairs(const absl::Status& status,
                                                             absl::string_view url) {
  std::vector<std::pair<std::string, std::string>> pairs;
  const auto payload = status.GetPayload(url);
  if (!payload.has_value()) return pairs;
  const std::string bytes(*payload);
  absl::string_view packed = bytes;
  std::pair<std::string, std::string> pair;
  while (TakeText(packed, pair.first) && TakeText(packed, pair.second)) pairs.push_back(pair);
  return pairs;
}

}  // namespace

absl::Status MakeError(absl::StatusCode code, absl::string_view reason, absl::string_view message) {
  absl::Status status(code, message);
  status.SetPayload(kReasonUrl, absl::Cord(reason));
  return status;
}

std::string ErrorReason(const absl::Status& status) {
  const auto payload = status.GetPayload(kReasonUrl);
  return payload.has_value() ? std::string(*payload) : std::string();
}

absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status result(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload([&result](absl::string_view url, const absl::Cord& payload) {
    result.SetPayload(url, payload);
  });
  return result;
}

absl::Status InvalidFields(const std::vector<FieldViolation>& violations) {
  std::string message = violations.size() == 1
                            ? std::string("the request has a violation")
                            : absl::StrCat("the request has ", violations.size(), " violations");
  for (const FieldViolation& violation : violations) {
    absl::StrAppend(&message, "\n  ", violation.field, ": ", violation.description);
  }
  absl::Status status = MakeError(absl::StatusCode::kInvalidArgument, error::kInvalidSpec, message);
  SetFieldViolations(status, violations);
  return status;
}

void SetFieldViolations(absl::Status& status, const std::vector<FieldViolation>& violations) {
  std::vector<std::pair<absl::string_view, absl::string_view>> pairs;
  pairs.reserve(violations.size());
  for (const FieldViolation& violation : violations) {
    pairs.emplace_back(violation.field, violation.description);
  }
  status.SetPayload(kViolationsUrl, PackPairs(pairs));
}

std::vector<FieldViolation> GetFieldViolations(const absl::Status& status) {
  std::vector<FieldViolation> violations;
  for (auto& [field, description] : UnpackPairs(status, kViolationsUrl)) {
    violations.push_back({std::move(field), std::move(description)});
  }
  return violations;
}

void SetErrorMetadata(absl::Status& status, const std::map<std::string, std::string>& metadata) {
  status.SetPayload(kMetadataUrl, PackPairs({metadata.begin(), metadata.end()}));
}

std::map<std::string, std::string> GetErrorMetadata(const absl::Status& status) {
  std::map<std::string, std::string> metadata;
  for (auto& [key, value] : UnpackPairs(status, kMetadataUrl)) metadata[key] = std::move(value);
  return metadata;
}

void SetRetryDelay(absl::Status& status, absl::Duration delay) {
  status.SetPayload(kRetryDelayUrl, absl::Cord(absl::StrCat(absl::ToInt64Microseconds(delay))));
}

std::optional<absl::Duration> GetRetryDelay(const absl::Status& status) {
  const auto payload = status.GetPayload(kRetryDelayUrl);
  int64_t microseconds = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &microseconds)) {
    return std::nullopt;
  }
  return absl::Microseconds(microseconds);
}

namespace error {
namespace {

absl::Status NotFound(absl::string_view kind, absl::string_view name, absl::string_view list) {
  return MakeError(absl::StatusCode::kNotFound, "NOT_FOUND",
                   absl::StrCat(kind, " '", name, "' does not exist; ", list));
}

}  // namespace

absl::Status JobNotFound(absl::string_view name) {
  return NotFound("job", name, "`trainyard ls` shows the jobs there are");
}

absl::Status AttemptNotFound(absl::string_view name) {
  return NotFound("attempt", name, "`trainyard show JOB` shows the attempts there are");
}

absl::Status CheckpointNotFound(absl::string_view name) {
  return NotFound("checkpoint", name, "`trainyard checkpoints ls JOB` shows those there are");
}

absl::Status OutputsReplaced(absl::string_view job, int64_t asked, int64_t present) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "OUTPUTS_REPLACED",
                   absl::StrCat("the outputs of attempt ", asked, " of job '", job,
                                "' were replaced by those of attempt ", present,
                                "; the same command fetches the new ones"));
}

absl::Status WorkerNotFound(absl::string_view name) {
  return NotFound("worker", name, "`trainyard workers ls` shows the workers there are");
}

absl::Status DeviceNotFound(absl::string_view worker, absl::string_view device) {
  return NotFound("device", absl::StrCat(worker, "/", device),
                  "`trainyard devices ls` shows the devices there are");
}

absl::Status ReservationNotFound(absl::string_view name) {
  return NotFound("reservation", name, "`trainyard reservations ls` shows those there are");
}

absl::Status QuotaExceeded(absl::string_view subject, absl::string_view what, int64_t wanted,
                           int64_t limit) {
  absl::Status status =
      MakeError(absl::StatusCode::kResourceExhausted, "QUOTA_EXCEEDED",
                absl::StrCat("'", subject, "' would have ", wanted, " ", what, "; its quota is ",
                             limit, ": `trainyard quotas ls` shows it, an operator can raise it"));
  SetErrorMetadata(status, {{"subject", std::string(subject)},
                            {"what", std::string(what)},
                            {"wanted", absl::StrCat(wanted)},
                            {"limit", absl::StrCat(limit)}});
  return status;
}

absl::Status ReservationExists(absl::string_view name) {
  return MakeError(absl::StatusCode::kAlreadyExists, "RESERVATION_EXISTS",
                   absl::StrCat("reservation '", name, "' exists; choose another name"));
}

absl::Status JobStateConflict(absl::string_view job, absl::string_view state,
                              absl::string_view verb) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "JOB_STATE_CONFLICT",
                   absl::StrCat("job '", job, "' is ", state, " and cannot be ", verb));
}

absl::Status WorkerNotUnreachable(absl::string_view name) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "WORKER_NOT_UNREACHABLE",
                   absl::StrCat("worker '", name,
                                "' is ACTIVE: it still reports, so its host is not "
                                "dead; `trainyard drain` empties it"));
}

absl::Status CannotRun(absl::string_view why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, kCannotRun,
                   absl::StrCat("this job can never run here: ", why,
                                "; --wait-for-devices queues it until there are such devices"));
}

absl::Status RequestIdReused(absl::string_view request_id) {
  return MakeError(absl::StatusCode::kAlreadyExists, "REQUEST_ID_REUSED",
                   absl::StrCat("request id '", request_id,
                                "' was used for a different request; use a new one"));
}

absl::Status StaleFencingToken(absl::string_view job, int64_t got, int64_t current) {
  return MakeError(absl::StatusCode::kAborted, "STALE_FENCING_TOKEN",
                   absl::StrCat("job '", job, "': fencing token ", got,
                                " is stale; the current one is ", current));
}

absl::Status UnknownSession(absl::string_view session) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "UNKNOWN_SESSION",
                   absl::StrCat("session '", session, "' is unknown here; register again"));
}

absl::Status WorkerNameTaken(absl::string_view worker, absl::string_view why) {
  return MakeError(
      absl::StatusCode::kAlreadyExists, "WORKER_NAME_TAKEN",
      absl::StrCat("worker '", worker, "' cannot register: ", why, "; give this one another name"));
}

absl::Status StoreTooNew(absl::string_view path, int64_t version, int64_t newest_known) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "STORE_TOO_NEW",
                   absl::StrCat("store '", path, "' has version ", version,
                                "; this server knows versions up to ", newest_known,
                                "; run the server that wrote it, or restore a backup"));
}

absl::Status OffsetMismatch(absl::string_view stream, int64_t got, int64_t expected) {
  absl::Status status =
      MakeError(absl::StatusCode::kOutOfRange, "OFFSET_MISMATCH",
                absl::StrCat(stream, ": chunk starts at ", got, "; expected ", expected));
  SetErrorMetadata(status, {{kExpectedOffset, absl::StrCat(expected)}});
  return status;
}

absl::Status StateLocked(absl::string_view path, absl::string_view holder) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "STATE_LOCKED",
                   absl::StrCat("state directory '", path, "' is in use by ", holder,
                                "; stop it, or choose another with --state_dir"));
}

absl::Status StateNotOwned(absl::string_view path, int64_t owner_uid, int64_t our_uid) {
  return MakeError(
      absl::StatusCode::kPermissionDenied, "STATE_NOT_OWNED",
      absl::StrCat("state directory '", path, "' belongs to uid ", owner_uid, " and we are uid ",
                   our_uid, "; choose another with --state_dir, or change its owner"));
}

absl::Status StateNotPrivate(absl::string_view path, int mode) {
  return MakeError(absl::StatusCode::kPermissionDenied, "STATE_NOT_PRIVATE",
                   absl::StrFormat("state directory '%s' has mode %04o, so others may write there; "
                                   "expected one in which only its owner may: chmod go-w '%s'",
                                   path, mode, path));
}

absl::Status NotARegularFile(absl::string_view path) {
  return MakeError(absl::StatusCode::kFailedPrecondition, "NOT_A_REGULAR_FILE",
                   absl::StrCat("'", path, "' is a link, a FIFO or a device; expected a file"));
}

absl::Status OwnerRefused(absl::string_view why) {
  return MakeError(absl::StatusCode::kNotFound, kOwnerRefused, why);
}

absl::Status AddressInUse(absl::string_view address) {
  return MakeError(
      absl::StatusCode::kUnavailable, "ADDRESS_IN_USE",
      absl::StrCat("cannot listen on '", address,
                   "': the address is in use; stop what listens there, or choose another"));
}

absl::Status DiskFull(absl::string_view path) {
  return MakeError(
      absl::StatusCode::kResourceExhausted, "DISK_FULL",
      absl::StrCat("no space left on the file system of '", path, "'; free some and try again"));
}

absl::Status DatasetNotFound(absl::string_view dataset, absl::string_view looked_at) {
  return MakeError(absl::StatusCode::kNotFound, "DATASET_NOT_FOUND",
                   absl::StrCat("dataset '", dataset, "' was not found: looked for ", looked_at,
                                "; put it there, or set the worker's --dataset_dir"));
}

absl::Status DatasetIncomplete(absl::string_view dataset, absl::string_view what) {
  return MakeError(absl::StatusCode::kNotFound, kDatasetIncomplete,
                   absl::StrCat("dataset '", dataset, "' is incomplete: ", what));
}

absl::Status DatasetTooSmall(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, "DATASET_TOO_SMALL", what);
}

absl::Status InitNotFound(absl::string_view checkpoint, absl::string_view looked_at) {
  return MakeError(absl::StatusCode::kNotFound, "INIT_NOT_FOUND",
                   absl::StrCat("init.checkpoint '", checkpoint, "' was not found: looked for ",
                                looked_at, "; put it there, or set the worker's --dataset_dir"));
}

absl::Status CorruptFile(absl::string_view path, absl::string_view what) {
  return MakeError(absl::StatusCode::kDataLoss, "CORRUPT_FILE",
                   absl::StrCat("'", path, "' is corrupt: ", what));
}

absl::Status CommitsLost(absl::string_view path, int64_t have, int64_t committed) {
  return MakeError(
      absl::StatusCode::kDataLoss, "COMMITS_LOST",
      absl::StrCat("'", path, "' is at revision ", have, ", but revision ", committed,
                   " was committed to it: the last ", committed - have,
                   " commits are gone, and with them what they acknowledged. Its -wal file is "
                   "damaged or missing, or an older copy was put in its place. Restore a newer "
                   "copy, or start once with --accept_lost_commits to go on without them"));
}

absl::Status CheckpointDamaged(absl::string_view name, absl::string_view damage,
                               absl::string_view instead) {
  return MakeError(absl::StatusCode::kDataLoss, kCheckpointDamaged,
                   absl::StrCat("checkpoint '", name, "' is damaged on the server: ", damage,
                                instead.empty() ? "" : "; ", instead));
}

absl::Status LossNotFinite(double loss, int64_t step, absl::string_view lr_field, double lr) {
  return MakeError(
      absl::StatusCode::kInvalidArgument, "LOSS_NOT_FINITE",
      absl::StrCat("loss is ", loss, " at step ", step, "; lower ", lr_field, " (now ", lr, ")"));
}

absl::Status ServerUnreachable(absl::string_view address, absl::string_view cause) {
  return MakeError(absl::StatusCode::kUnavailable, "SERVER_UNREACHABLE",
                   absl::StrCat("no server answers at '", address, "' (", cause,
                                "); start one with `trainyard up`"));
}

}  // namespace error
}  // namespace trainyard
