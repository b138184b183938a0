// Declares named errors. Every failure that a user can meet has a reason in UPPER_SNAKE_CASE, and a
// comment here that says what to do about it. The reason travels as a payload of absl::Status;
// common/rpc turns it into google.rpc.ErrorInfo and BadRequest details, and back.
//
// Messages are lower-case clauses with the value and what was expected:
//   job 'resnet': 6 devices cannot hold 4 stages evenly; use 4 or 8
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard {

// One invalid field of a request: its path in the message ("spec.train.global_batch") and what is
// wrong.
struct FieldViolation {
  std::string field;
  std::string description;

  friend bool operator==(const FieldViolation&, const FieldViolation&) = default;
};

// Makes a status with a reason. `reason` is UPPER_SNAKE_CASE and stable: programs may switch on it.
absl::Status MakeError(absl::StatusCode code, absl::string_view reason, absl::string_view message);

// Returns the reason of a status that MakeError made or that was decoded from the wire, or an empty
// text if it has none.
std::string ErrorReason(const absl::Status& status);

// Returns `status` with `context: ` before its message. Code and payloads stay.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

// Makes one status of all violations of a request. There must be at least one.
absl::Status InvalidFields(const std::vector<FieldViolation>& violations);
void SetFieldViolations(absl::Status& status, const std::vector<FieldViolation>& violations);
std::vector<FieldViolation> GetFieldViolations(const absl::Status& status);

// Attaches values that the message mentions, for programs (google.rpc.ErrorInfo.metadata): the
// offset that was expected, or the state of a job.
void SetErrorMetadata(absl::Status& status, const std::map<std::string, std::string>& metadata);
std::map<std::string, std::string> GetErrorMetadata(const absl::Status& status);

// Asks the caller to wait at least this long before it tries again (google.rpc.RetryInfo).
void SetRetryDelay(absl::Status& status, absl::Duration delay);
std::optional<absl::Duration> GetRetryDelay(const absl::Status& status);

namespace error {

// INVALID_SPEC: read the violations; each names the field and what is accepted there.
inline constexpr char kInvalidSpec[] = "INVALID_SPEC";
// NOT_FOUND: list what exists (`trainyard ls`, `trainyard workers ls`) and check the id.
absl::Status JobNotFound(absl::string_view name);
absl::Status AttemptNotFound(absl::string_view name);
absl::Status CheckpointNotFound(absl::string_view name);
absl::Status WorkerNotFound(absl::string_view name);
absl::Status DeviceNotFound(absl::string_view worker, absl::string_view device);
absl::Status ReservationNotFound(absl::string_view name);
// JOB_STATE_CONFLICT: the job is in a state in which the verb makes no sense; `trainyard show`
// tells the state.
absl::Status JobStateConflict(absl::string_view job, absl::string_view state,
                              absl::string_view verb);
// WORKER_NOT_UNREACHABLE: the worker still reports; drain it, or stop its daemon first.
absl::Status WorkerNotUnreachable(absl::string_view name);
// REQUEST_ID_REUSED: the same request_id came with another spec; use a new request_id.
absl::Status RequestIdReused(absl::string_view request_id);
// QUOTA_EXCEEDED: wait for jobs of the subject to end, or ask an operator to raise the quota.
absl::Status QuotaExceeded(absl::string_view subject, absl::string_view what, int64_t wanted,
                           int64_t limit);
// CANNOT_RUN: the known workers could never hold the job; change what the message names, or submit
// it with --wait-for-devices if such devices are to come.
inline constexpr char kCannotRun[] = "CANNOT_RUN";
absl::Status CannotRun(absl::string_view why);
// RESERVATION_EXISTS: choose another name.
absl::Status ReservationExists(absl::string_view name);
// STALE_FENCING_TOKEN: the attempt was superseded; the worker must stop what runs under the old
// token.
absl::Status StaleFencingToken(absl::string_view job, int64_t got, int64_t current);
// UNKNOWN_SESSION: the server does not know the session; the worker must register again.
absl::Status UnknownSession(absl::string_view session);
// WORKER_NAME_TAKEN: another worker has this name; choose another with --name, or stop the first.
absl::Status WorkerNameTaken(absl::string_view worker, absl::string_view why);
// STORE_TOO_NEW: a newer server has written the file; run that version, or restore a backup.
absl::Status StoreTooNew(absl::string_view path, int64_t version, int64_t newest_known);
// OFFSET_MISMATCH: a stream chunk does not start where the server stands; resume at the offset it
// names (metadata `expected_offset`, decimal).
inline constexpr char kExpectedOffset[] = "expected_offset";
absl::Status OffsetMismatch(absl::string_view stream, int64_t got, int64_t expected);
// STATE_LOCKED: another server (or worker) holds the state directory; stop it or choose another
// directory.
absl::Status StateLocked(absl::string_view path, absl::string_view holder);
// STATE_NOT_OWNED: the state directory belongs to another user; choose another, or change its
// owner.
absl::Status StateNotOwned(absl::string_view path, int64_t owner_uid, int64_t our_uid);
// STATE_NOT_PRIVATE: others may write into the state directory, and could make the daemon do what
// they want; take their right away with chmod, or choose another directory.
absl::Status StateNotPrivate(absl::string_view path, int mode);
// NOT_A_REGULAR_FILE: a link, a FIFO or a device stands where a run has its files; remove it.
absl::Status NotARegularFile(absl::string_view path);
// OWNER_REFUSED: the worker does not run jobs of this user, because the user has no account on its
// host, or because it is root; make the account, or let the job run on another worker.
inline constexpr char kOwnerRefused[] = "OWNER_REFUSED";
absl::Status OwnerRefused(absl::string_view why);
// ADDRESS_IN_USE: something listens there already; stop it or choose another address.
absl::Status AddressInUse(absl::string_view address);
// DISK_FULL: free space on the file system of the path; nothing acknowledged was lost.
absl::Status DiskFull(absl::string_view path);
// DATASET_NOT_FOUND: put the files there, or set --dataset_dir of the worker (DATASETS=DIR for
// `make demo`).
absl::Status DatasetNotFound(absl::string_view dataset, absl::string_view looked_at);
// DATASET_INCOMPLETE: a part of the data set is there and a part is missing; put the missing part
// there too. `what` says what is missing and why it is expected.
inline constexpr char kDatasetIncomplete[] = "DATASET_INCOMPLETE";
absl::Status DatasetIncomplete(absl::string_view dataset, absl::string_view what);
// DATASET_TOO_SMALL: the split has no sample of the size that the spec asks for; use more data, or
// smaller samples.
absl::Status DatasetTooSmall(absl::string_view what);
// INIT_NOT_FOUND: put the file below the worker's folder of data sets, or set --dataset_dir.
absl::Status InitNotFound(absl::string_view checkpoint, absl::string_view looked_at);
// CORRUPT_FILE: the file's bytes are not what its format demands; fetch it again.
absl::Status CorruptFile(absl::string_view path, absl::string_view what);
// COMMITS_LOST: the database is older than what was committed to it; restore a copy, or accept the
// loss with --accept_lost_commits.
absl::Status CommitsLost(absl::string_view path, int64_t have, int64_t committed);
// CHECKPOINT_DAMAGED: the server has found that its bytes of the checkpoint are not what was
// written. Start from another step (`trainyard checkpoints ls` shows which are whole), or restore
// the files and run `trainyard checkpoints verify`. `instead` says what there is.
inline constexpr char kCheckpointDamaged[] = "CHECKPOINT_DAMAGED";
absl::Status CheckpointDamaged(absl::string_view name, absl::string_view damage,
                               absl::string_view instead);
// OUTPUTS_REPLACED: a newer attempt has left its outputs meanwhile; run the command again.
absl::Status OutputsReplaced(absl::string_view job, int64_t asked, int64_t present);
// LOSS_NOT_FINITE: the training diverged; lower the learning rate, or warm up longer. `lr_field` is
// the field of the spec that holds the rate, "optimizer.sgd.lr".
absl::Status LossNotFinite(double loss, int64_t step, absl::string_view lr_field, double lr);
// SERVER_UNREACHABLE: no server answers there; start one with `trainyard up`.
absl::Status ServerUnreachable(absl::string_view address, absl::string_view cause);

}  // namespace error
}  // namespace trainyard
