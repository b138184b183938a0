// Fetches the files of a copy into the blob store, as an import from a client would send them.
#include "server/rpc/checkpoint_imports.h"

#include <algorithm>
#include <future>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/base/duration.h"
#include "common/base/errors.h"
#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/s3/errors.h"
#include "common/s3/manifest_store.h"
#include "common/tls/digest.h"
#include "server/access/rules.h"
#include "server/codec/time.h"
#include "server/rpc/checkpoint_evaluation.h"
#include "server/rpc/convert.h"
#include "server/rpc/copied_checkpoint.h"
#include "server/rpc/decisions.h"
#include "server/rpc/import_job.h"
#include "server/rpc/limits.h"
#include "server/rpc/request.h"
#include "server/runtime/copy_errors.h"
#include "server/runtime/copy_folder.h"

namespace trainyard::rpc {
namespace {

// Each piece is synced, so pieces are large.
constexpr size_t kPieceBytes = size_t{8} << 20;
// Nobody here has written the manifest. One of 1000 files has less than 1 MiB, and a job with a
// long spec has some more. A copy has one manifest, or a few if its server was cut off.
constexpr s3::ReadLimits kReadLimits = {
    .manifest_bytes = int64_t{16} << 20, .manifests = 100, .objects = 10'000};

absl::Status Stopping() {
  return absl::UnavailableError("the server is shutting down; try again");
}

absl::StatusOr<core::Reply> PostAndWait(runtime::Runtime& runtime, core::Input input) {
  std::promise<absl::StatusOr<core::Reply>> answer;
  runtime.Post(std::move(input),
               [&answer](const absl::StatusOr<core::Reply>& reply) { answer.set_value(reply); });
  return answer.get_future().get();
}

// Returns the attempt to which so many bytes may be added.
absl::StatusOr<AttemptId> CheckRoom(runtime::Runtime& runtime, JobId job, int64_t bytes) {
  std::promise<absl::StatusOr<AttemptId>> answer;
  runtime.Read([&](const absl::StatusOr<const core::Yard*>& yard) {
    answer.set_value(yard.ok() ? (*yard)->CheckImport(job, bytes)
                               : absl::StatusOr<AttemptId>(yard.status()));
  });
  return answer.get_future().get();
}

// A client takes UNAVAILABLE without the reason of a bucket for a server that restarts, and asks
// again, which would begin the import again.
absl::Status ExplainFailure(const absl::Status& status) {
  const std::string reason = ErrorReason(status);
  if (reason == error::kS3Unavailable) {
    return MakeError(status.code(), reason,
                     absl::StrCat(status.message(),
                                  "; nothing was imported, so see that this server reaches the "
                                  "bucket, and try again"));
  }
  return absl::IsUnavailable(status) ? absl::InternalError(status.message()) : status;
}

// A copy goes when its server deletes the checkpoint, also while it is being read.
absl::Status ExplainLoss(const absl::Status& status, const std::string& place) {
  if (!absl::IsNotFound(status)) return status;
  return error::CorruptFile(
      place, absl::StrCat("a file of it is not in the bucket, or not any more, if its server has "
                          "deleted the checkpoint meanwhile; take a newer one: ",
                          status.message()));
}

// Finds the newest one if the place names no step.
absl::StatusOr<core::CheckpointRef> Find(s3::Client& client, const CopyPlace& place,
                                         const std::string& shown, int64_t objects_max) {
  if (place.step.has_value()) return core::CheckpointRef{place.job, *place.step};
  // Whoever only reads writes under no condition.
  runtime::CopyFolder folder(client, place.prefix, s3::Conditions::kIgnored);
  const auto copies = folder.List(place.job, objects_max);
  if (absl::IsResourceExhausted(copies.status())) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the newest checkpoint at '", shown, "' is not looked for: ", copies.status().message(),
        "; name one of them: ", absl::StripSuffix(shown, "/"), "/STEP"));
  }
  TY_RETURN_IF_ERROR(copies.status());
  const auto newest =
      std::find_if(copies->rbegin(), copies->rend(), [](const auto& copy) { return copy.second; });
  if (newest == copies->rend()) return error::NoCopy(shown);
  return newest->first;
}

}  // namespace

absl::Status CheckpointImports::CheckPlace(const std::string& place) const {
  for (const std::string& allowed : options_.places) {
    const std::string folder = absl::StrCat(absl::StripSuffix(allowed, "/"), "/");
    if (absl::StartsWith(absl::StrCat(place, "/"), folder)) return absl::OkStatus();
  }
  return error::PlaceNotAllowed(place, options_.places);
}

absl::StatusOr<v1::ImportCheckpointResponse> CheckpointImports::Ask(
    const access::Caller& caller, const v1::ImportCheckpointRequest& request) {
  TY_RETURN_IF_ERROR(ParseCopyPlace(request.place()).status());
  RequestCheck check;
  check.Name("project", request.project(), /*may_be_empty=*/true);
  TY_RETURN_IF_ERROR(check.Take());
  TY_RETURN_IF_ERROR(CheckPlace(request.place()));
  const Key key{caller.user, request.place(), request.project()};
  v1::ImportCheckpointResponse response;
  const MutexLock lock(&mutex_);
  if (is_stopping_) return Stopping();
  DropAnswers(key, clock_.Uptime());
  std::shared_ptr<Import> import;
  if (const auto known = imports_.find(key); known != imports_.end()) {
    import = known->second;
  } else {
    TY_RETURN_IF_ERROR(CheckRoomFor(caller.user));
    import = std::make_shared<Import>();
    import->caller = caller;
    import->request = request;
    TY_RETURN_IF_ERROR(executor_.TryPost([this, import] { Run(import); }));
    imports_[key] = import;
  }
  response.set_bytes(import->bytes);
  response.set_total_bytes(import->total_bytes);
  if (!import->is_done) return response;
  // Whoever asks again after this begins again, and finds what is there.
  const absl::StatusOr<v1::Checkpoint> result = import->result;
  imports_.erase(key);
  TY_RETURN_IF_ERROR(result.status());
  *response.mutable_checkpoint() = *result;
  return response;
}

absl::Status CheckpointImports::CheckRoomFor(const std::string& user) const {
  size_t all = 0;
  size_t own = 0;
  for (const auto& [key, import] : imports_) {
    if (import->is_done) continue;
    ++all;
    if (std::get<0>(key) == user) ++own;
  }
  if (own >= kImportsOfUserMax) {
    return runtime::ServerBusy(
        absl::StrCat(own, " checkpoints are being imported for '", user, "'"));
  }
  if (all >= kImportsMax) return runtime::ServerBusy("too many checkpoints are being imported");
  return absl::OkStatus();
}

void CheckpointImports::DropAnswers(const Key& key, absl::Duration now) {
  std::vector<std::pair<absl::Duration, Key>> answers;
  for (const auto& [other, import] : imports_) {
    if (other != key && import->is_done) answers.emplace_back(import->end, other);
  }
  std::sort(answers.rbegin(), answers.rend());
  for (size_t i = 0; i < answers.size(); ++i) {
    const auto& [end, other] = answers[i];
    if (i >= kAnswersMax || end < now - options_.keep) imports_.erase(other);
  }
}

void CheckpointImports::Stop() {
  const MutexLock lock(&mutex_);
  is_stopping_ = true;
  for (const auto& [key, import] : imports_) {
    if (import->client != nullptr) import->client->Cancel();
  }
}

void CheckpointImports::Run(const std::shared_ptr<Import>& import) {
  import->begin = clock_.Uptime();
  absl::StatusOr<v1::Checkpoint> result = Take(*import);
  if (!result.ok()) result = is_stopping_ ? Stopping() : ExplainFailure(result.status());
  if (!result.ok()) {
    LogWarning("a checkpoint cannot be taken from a bucket",
               {{"place", import->request.place()},
                {"user", import->caller.user},
                {"error", std::string(result.status().message())}});
  }
  const MutexLock lock(&mutex_);
  import->result = std::move(result);
  import->end = clock_.Uptime();
  import->is_done = true;
}

absl::StatusOr<v1::Checkpoint> CheckpointImports::Take(Import& import) {
  TY_ASSIGN_OR_RETURN(const CopyPlace place, ParseCopyPlace(import.request.place()));
  TY_ASSIGN_OR_RETURN(const std::unique_ptr<s3::Client> client, options_.connect(place.bucket));
  {
    const MutexLock lock(&mutex_);
    if (is_stopping_) return Stopping();
    import.client = client.get();
  }
  const absl::Cleanup forget = [this, &import] {
    const MutexLock lock(&mutex_);
    import.client = nullptr;
  };
  return TakeFrom(*client, import);
}

absl::StatusOr<v1::Checkpoint> CheckpointImports::TakeFrom(s3::Client& client, Import& import) {
  TY_ASSIGN_OR_RETURN(const CopyPlace place, ParseCopyPlace(import.request.place()));
  TY_ASSIGN_OR_RETURN(const core::CheckpointRef id,
                      Find(client, place, import.request.place(), options_.objects_max));
  const std::string shown =
      absl::StrCat("s3://", place.bucket, "/", place.prefix, runtime::CopyName(id));
  const std::string prefix = absl::StrCat(place.prefix, runtime::CopyName(id), "/");
  s3::ManifestStore store(client, prefix, s3::Conditions::kIgnored, kReadLimits);
  TY_ASSIGN_OR_RETURN(const s3::Version version, store.Latest());
  if (version.number == 0) return error::NoCopy(shown);
  TY_ASSIGN_OR_RETURN(const CopiedFiles copied, ReadCopy(version.content, shown));
  if (copied.bytes > options_.bytes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("'", shown, "' has ", FormatBytes(copied.bytes), "; at most ",
                     FormatBytes(options_.bytes_max), " are taken from a bucket"));
  }
  import.total_bytes = copied.bytes;

  // The job comes first, since only the quota of its owner says if there is room.
  const v1::ImportJobRequest request =
      ImportOfCopy(copied.manifest, version.content, import.request.project());
  RequestCheck check;
  Decisions decisions(access::RuleOf("BundleService/ImportCheckpoint"), import.caller, services_,
                      {import.request.place()});
  auto taken = ImportOf(request, import.caller, services_, check, decisions);
  decisions.Write();
  TY_RETURN_IF_ERROR(taken.status());
  TY_ASSIGN_OR_RETURN(const JobId job,
                      BeginJob(std::move(taken->input), copied.manifest.checkpoint().step()));
  auto stored = Store({client, prefix, shown}, copied, job, import);
  EndJob(job, import.caller.user, stored.ok());
  return stored;
}

absl::StatusOr<JobId> CheckpointImports::BeginJob(core::ImportJob input, int64_t step) {
  const std::string request_id = input.request_id;
  const std::map<JobId, int64_t> uploads = services_.blobs.UploadedBytes();
  const MutexLock lock(&jobs_mutex_);
  // Each round finds another job of an earlier import, so there are no more rounds than those.
  for (int round = 2;; ++round) {
    TY_ASSIGN_OR_RETURN(const core::Reply reply, PostAndWait(services_.runtime, input));
    if (!reply.existed || IsOfUse(reply.job, step, uploads)) {
      Filling& filling = filling_[reply.job];
      ++filling.imports;
      if (!reply.existed) filling.is_new = true;
      return reply.job;
    }
    input.request_id = absl::StrCat(request_id, "/", round);
  }
}

// A job that has lost its checkpoint gets none again. It counts as old: retention would delete the
// checkpoint at once, and the files that arrive for it would be those of an import that was given
// up.
bool CheckpointImports::IsOfUse(JobId job, int64_t step,
                                const std::map<JobId, int64_t>& uploads) const {
  const auto known = services_.board.FindCheckpoint({job, step});
  if (known != nullptr && known->is_whole()) return true;
  // Some of the files are there if the server died in the middle of an import.
  if (!filling_.contains(job) && !uploads.contains(job)) return false;
  const auto view = services_.board.FindJob(job);
  return view != nullptr && absl::FromUnixMicros(view->record.create_us) >
                                clock_.Now() - kImportTime + options_.time_max;
}

void CheckpointImports::EndJob(JobId job, const std::string& user, bool is_stored) {
  const MutexLock lock(&jobs_mutex_);
  Filling& filling = filling_.at(job);
  filling.is_done |= is_stored;
  if (--filling.imports > 0) return;
  const bool is_needed = !filling.is_new || filling.is_done;
  filling_.erase(job);
  // A job without its checkpoint is of no use to anybody. Its owner may have added another one.
  if (is_needed || !services_.board.CheckpointsOf(job).empty()) return;
  PostAndWait(services_.runtime, core::DeleteJob{job, {}, UserActor(user)}).status().IgnoreError();
}

absl::StatusOr<v1::Checkpoint> CheckpointImports::Store(const Source& source,
                                                        const CopiedFiles& copied, JobId job,
                                                        Import& import) {
  const v1::Checkpoint& checkpoint = copied.manifest.checkpoint();
  const core::CheckpointRef id{job, checkpoint.step()};
  const auto known = services_.board.FindCheckpoint(id);
  if (known != nullptr && known->is_whole()) return ToProto(*known);
  TY_ASSIGN_OR_RETURN(const AttemptId attempt, CheckRoom(services_.runtime, job, copied.bytes));
  const runtime::UploadId upload{attempt, id.step};
  for (const core::CheckpointFile& file : copied.files) {
    TY_RETURN_IF_ERROR(Fetch(source, file, copied.digests.at(file.name), upload, import));
  }
  TY_ASSIGN_OR_RETURN(const auto pin, services_.blobs.Seal(upload, copied.files));
  core::CommitImport commit;
  commit.checkpoint = id;
  commit.files = copied.files;
  commit.actor = UserActor(import.caller.user);
  commit.create_us = std::max<int64_t>(codec::FromTimestamp(checkpoint.create_time()), 0);
  commit.evaluation = ReadEvaluation(services_.blobs, copied.files);
  TY_RETURN_IF_ERROR(PostAndWait(services_.runtime, std::move(commit)).status());
  const auto stored = services_.board.FindCheckpoint(id);
  if (stored != nullptr) return ToProto(*stored);
  return error::CheckpointNotFound(CheckpointName(id.job, id.step));  // deleted already
}

absl::Status CheckpointImports::Fetch(const Source& source, const core::CheckpointFile& file,
                                      const std::string& digits, const runtime::UploadId& upload,
                                      Import& import) {
  tls::Sha256Hasher hasher;
  int64_t offset = 0;
  std::string piece;
  const auto append = [&]() -> absl::Status {
    TY_RETURN_IF_ERROR(services_.blobs.Append(upload, file, offset, piece).status());
    offset += static_cast<int64_t>(piece.size());
    import.bytes += static_cast<int64_t>(piece.size());
    piece.clear();
    return absl::OkStatus();
  };
  const auto take = [&](absl::string_view bytes) -> absl::Status {
    if (clock_.Uptime() - import.begin > options_.time_max) {
      return absl::DeadlineExceededError(
          absl::StrCat("'", source.shown, "' is not here after ", DurationText(options_.time_max),
                       "; try again when the way to the bucket is faster"));
    }
    if (offset + static_cast<int64_t>(piece.size() + bytes.size()) > file.size) {
      return error::CorruptFile(source.shown, absl::StrCat(file.name, " has more than ", file.size,
                                                           " bytes in the bucket"));
    }
    hasher.Update(bytes);
    absl::StrAppend(&piece, bytes);
    return piece.size() < kPieceBytes ? absl::OkStatus() : append();
  };
  const std::string key = absl::StrCat(source.prefix, "blobs/sha256/", digits);
  TY_RETURN_IF_ERROR(ExplainLoss(source.client.Read(key, {}, take).status(), source.shown));
  if (!piece.empty()) TY_RETURN_IF_ERROR(append());
  const std::string hash = hasher.Text();
  if (offset == file.size && hash == absl::StrCat("sha256:", digits)) return absl::OkStatus();
  return error::CorruptFile(
      source.shown, absl::StrCat(file.name, " has ", offset, " bytes and the hash ", hash,
                                 " in the bucket; expected ", file.size, " bytes and sha256:",
                                 digits, "; take an older or a newer checkpoint"));
}

}  // namespace trainyard::rpc
