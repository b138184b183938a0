// Downloads into a folder beside the final one, and renames it once every hash is right.
#include "worker/agent/checkpoint_fetcher.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/backoff.h"
#include "common/base/checkpoint_file.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "worker/agent/act_as.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/manifest.h"

namespace trainyard::agent {
namespace {

constexpr absl::Duration kFetchAgainFirst = absl::Milliseconds(100);
constexpr absl::Duration kFetchAgainLast = absl::Seconds(5);
constexpr absl::Duration kFetchTimeout = absl::Seconds(60);
// The server hashes a large checkpoint for longer than this. The call is repeated until it is done.
constexpr absl::Duration kVerifyTimeout = absl::Seconds(60);
constexpr int kDamageTries = 3;
constexpr absl::Duration kCancelPoll = absl::Milliseconds(100);

absl::Status FetchFile(v1::AgentService::StubInterface& stub, const ResumeSource& source,
                       const CheckpointFile& file, const std::string& folder,
                       const FileOwner& owner, CancelToken& token) {
  const std::string path = JoinPath(folder, file.name);
  const absl::StatusOr<UniqueFd> opened = [&] {
    const ActAs as(owner);
    return OpenRegularFile(path, O_WRONLY | O_CREAT | O_APPEND);
  }();
  TY_RETURN_IF_ERROR(opened.status());
  const UniqueFd& fd = *opened;
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "cannot stat", path);
  int64_t size = info.st_size;
  if (size < file.size) {
    v1::DownloadCheckpointRequest request;
    request.set_name(source.name);
    request.set_file(file.name);
    request.set_offset(size);
    grpc::ClientContext context;
    rpc::SetTimeout(context, kFetchTimeout);
    const CancelToken::Scope scope(token, context);
    const auto reader = stub.FetchCheckpoint(&context, request);
    v1::DownloadCheckpointResponse response;
    absl::Status local = absl::OkStatus();
    while (local.ok() && reader->Read(&response)) {
      if (token.cancelled()) {
        local = absl::CancelledError("the checkpoint is no longer wanted");
      } else if (response.offset() != size ||
                 size + static_cast<int64_t>(response.data().size()) > file.size) {
        local = error::CorruptFile(
            path, absl::StrCat("the server sent ", response.data().size(), " bytes at offset ",
                               response.offset(), "; expected offset ", size));
      } else {
        local = WriteFully(fd.get(), response.data(), path);
        size += static_cast<int64_t>(response.data().size());
      }
    }
    if (!local.ok()) context.TryCancel();
    const absl::Status finished = rpc::FromGrpcStatus(reader->Finish());
    TY_RETURN_IF_ERROR(local);
    TY_RETURN_IF_ERROR(finished);
  }
  if (fsync(fd.get()) != 0) return ErrnoStatus(errno, "cannot sync", path);
  return absl::OkStatus();
}

// Asks the server to look at its own copy, because what arrived does not match its hashes: `damage`
// says how. Returns CHECKPOINT_DAMAGED if it has no better one, UNAVAILABLE if it did not answer
// yet, and `damage` if its copy is whole, or if it is too old to be asked.
absl::Status AskServer(v1::AgentService::StubInterface& stub, const ResumeSource& source,
                       const absl::Status& damage, CancelToken& token) {
  v1::VerifyCheckpointRequest request;
  request.set_name(source.name);
  v1::Checkpoint found;
  grpc::ClientContext context;
  rpc::SetTimeout(context, kVerifyTimeout);
  const CancelToken::Scope scope(token, context);
  const absl::Status asked = rpc::FromGrpcStatus(stub.VerifyCheckpoint(&context, request, &found));
  if (absl::IsUnimplemented(asked)) return damage;
  TY_RETURN_IF_ERROR(asked);
  if (found.damage().empty()) return damage;
  return error::CheckpointDamaged(source.name, found.damage(), "");
}

}  // namespace

absl::Status FetchCheckpoint(v1::AgentService::StubInterface& stub, const ResumeSource& source,
                             const std::string& folder, const FileOwner& owner,
                             CancelToken& token) {
  const std::string partial = folder + ".partial";
  {
    const ActAs as(owner);
    if (checkpoint::VerifyCheckpoint(folder).ok()) return absl::OkStatus();
    TY_RETURN_IF_ERROR(MakeDirectories(partial));
  }
  checkpoint::Manifest manifest;
  manifest.step = source.step;
  for (const CheckpointFile& file : source.files) {
    if (!IsCheckpointFileName(file.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("checkpoint '", source.name, "' has a file '", file.name, "'"));
    }
    if (const size_t slash = file.name.rfind('/'); slash != std::string::npos) {
      const ActAs as(owner);
      TY_RETURN_IF_ERROR(MakeDirectories(JoinPath(partial, file.name.substr(0, slash))));
    }
    TY_RETURN_IF_ERROR(FetchFile(stub, source, file, partial, owner, token));
    manifest.files.push_back({file.name, file.size, file.hash});
  }
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  const ActAs as(owner);
  TY_RETURN_IF_ERROR(
      WriteFileAtomically(JoinPath(partial, kManifestName), checkpoint::EncodeManifest(manifest)));
  absl::Status verified = checkpoint::VerifyCheckpoint(partial).status();
  if (!verified.ok()) {
    // We cannot tell the wrong parts from the right ones, so the next try begins again.
    TY_RETURN_IF_ERROR(RemoveTree(partial));
    return verified;
  }
  // A damaged copy may be in the way.
  TY_RETURN_IF_ERROR(RemoveTree(folder));
  if (rename(partial.c_str(), folder.c_str()) != 0) {
    return ErrnoStatus(errno, "cannot rename to", folder);
  }
  return SyncDirectory(folder.substr(0, folder.rfind('/')));
}

CheckpointFetcher::CheckpointFetcher(v1::AgentService::StubInterface& stub, CodeCache& code,
                                     Clock& clock, Rng& rng, std::function<void()> on_done)
    : stub_(stub), code_(code), clock_(clock), rng_(rng), on_done_(std::move(on_done)) {}

CheckpointFetcher::~CheckpointFetcher() {
  std::map<AttemptId, std::unique_ptr<Fetch>> fetches;
  {
    absl::MutexLock lock(&mutex_);
    fetches.swap(fetches_);
  }
  for (auto& [id, fetch] : fetches) fetch->token.Cancel();
  for (auto& [id, fetch] : fetches) fetch->thread.join();
}

void CheckpointFetcher::Begin(AttemptId id, FetchPlan plan) {
  Begin(id, [this, plan = std::move(plan)](CancelToken& token) { return FetchOnce(plan, token); });
}

void CheckpointFetcher::Begin(AttemptId id, Work work) {
  Cancel(id);
  auto fetch = std::make_unique<Fetch>();
  Fetch* borrowed = fetch.get();
  absl::MutexLock lock(&mutex_);
  fetches_[id] = std::move(fetch);
  borrowed->thread =
      std::thread([this, id, borrowed, work = std::move(work)] { Run(id, work, borrowed->token); });
}

void CheckpointFetcher::Cancel(AttemptId id) {
  std::unique_ptr<Fetch> fetch;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = fetches_.find(id);
    if (found == fetches_.end()) return;
    fetch = std::move(found->second);
    fetches_.erase(found);
  }
  fetch->token.Cancel();
  fetch->thread.join();
  absl::MutexLock lock(&mutex_);
  done_.erase(id);
}

std::map<AttemptId, absl::Status> CheckpointFetcher::TakeDone() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(done_, {});
}

absl::Status CheckpointFetcher::FetchOnce(const FetchPlan& plan, CancelToken& token) {
  if (plan.code.has_value()) {
    TY_RETURN_IF_ERROR(code_.Unpack(stub_, *plan.code, plan.code_folder, plan.owner, token));
  }
  if (!plan.checkpoint.has_value()) return absl::OkStatus();
  absl::Status status =
      FetchCheckpoint(stub_, *plan.checkpoint, plan.checkpoint_folder, plan.owner, token);
  if (absl::IsDataLoss(status)) status = AskServer(stub_, *plan.checkpoint, status, token);
  return status;
}

void CheckpointFetcher::Run(AttemptId id, const Work& work, CancelToken& token) {
  Backoff backoff(kFetchAgainFirst, kFetchAgainLast, rng_);
  absl::Status status = absl::CancelledError("the attempt is no longer wanted");
  int damaged = 0;
  while (!token.cancelled()) {
    status = work(token);
    if (ErrorReason(status) == error::kCheckpointDamaged) break;
    if (absl::IsDataLoss(status) && ++damaged >= kDamageTries) break;
    const bool again = absl::IsDataLoss(status) || absl::IsUnavailable(status) ||
                       absl::IsDeadlineExceeded(status) || ErrorReason(status) == "SERVER_BUSY";
    if (!again) break;
    LogWarning("what an attempt starts from cannot be fetched yet",
               {{"attempt", AttemptName(id)}, {"error", std::string(status.message())}});
    for (absl::Duration left = backoff.Next(); left > absl::ZeroDuration() && !token.cancelled();
         left -= kCancelPoll) {
      clock_.SleepFor(std::min(left, kCancelPoll));
    }
  }
  {
    absl::MutexLock lock(&mutex_);
    done_[id] = status;
  }
  on_done_();
}

}  // namespace trainyard::agent
