// Implements the thread and the calls of the checkpoint uploader.
#include "worker/agent/checkpoint_uploader.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "worker/agent/act_as.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/run_dir/outputs.h"

namespace trainyard::agent {
namespace {

// The timeout is long because the server takes a while to hash a large checkpoint.
constexpr absl::Duration kUploadTimeout = absl::Seconds(60);
constexpr int64_t kChunkBytes = 1 << 20;
// The bytes that the server accepts to tell what outputs leave out, and those that one reason may
// add to it.
constexpr size_t kLeftOutBytesMax = 4096;
constexpr size_t kOutputReasonBytesMax = 300;
// A file that has changed so often while it was sent is left out of the outputs.
constexpr int kChangesMax = 2;
// Processes that a program has left behind may change one file after the other, and other attempts
// wait.
constexpr int kOutputTries = 4;

v1::CheckpointFile EntryToProto(const checkpoint::ManifestEntry& entry) {
  v1::CheckpointFile file;
  file.set_name(entry.name);
  file.set_size(entry.size);
  file.set_hash(entry.hash);
  return file;
}

// A file that cannot be read is damaged. Its owner may have made it so, and the checkpoints of
// others must not wait for it. One that is gone was pruned.
absl::Status OfFile(const std::string& path, const absl::Status& status) {
  if (absl::IsDataLoss(status) || absl::IsNotFound(status)) return status;
  return error::CorruptFile(path, status.message());
}

// Counts how often each file was seen to change while it was sent.
using ChangeCounts = std::map<std::string, int>;

// Returns the hash of a file that has this size before and after it is read.
absl::StatusOr<std::string> HashOfSize(const std::string& path, int64_t size) {
  TY_ASSIGN_OR_RETURN(std::string hash, RegularFileHash(path, size));
  TY_ASSIGN_OR_RETURN(const int64_t now, FileSize(path));
  if (now != size) return error::CorruptFile(path, "its size has changed");
  return hash;
}

// Fills in the files that are kept, with their hashes, and what is left out.
void ListOutputs(const run_dir::OutputsPlan& plan, const ChangeCounts& changes,
                 v1::CommitCheckpointRequest& commit) {
  run_dir::FoundOutputs found = run_dir::FindOutputs(plan, {});
  const auto leave_out = [&found](const std::string& why) {
    absl::StrAppend(&found.left_out, found.left_out.empty() ? "" : "; ",
                    PlainText(why, kOutputReasonBytesMax));
  };
  for (const run_dir::OutputFile& output : found.files) {
    const auto known = changes.find(output.name);
    if (known != changes.end() && known->second >= kChangesMax) {
      leave_out(absl::StrCat("'", output.name, "' changed again and again while it was sent"));
      continue;
    }
    // A file that was removed or cannot be read in the meantime is left out.
    auto hash = HashOfSize(JoinPath(plan.folder, output.name), output.size);
    if (!hash.ok()) {
      leave_out(std::string(hash.status().message()));
      continue;
    }
    v1::CheckpointFile& file = *commit.add_files();
    file.set_name(output.name);
    file.set_size(output.size);
    file.set_hash(*std::move(hash));
  }
  if (!found.left_out.empty()) commit.set_left_out(PlainText(found.left_out, kLeftOutBytesMax));
}

// Looks which of the files are others than those that were listed. Returns false if none is.
bool CountChanges(const std::string& folder, const v1::CommitCheckpointRequest& commit,
                  ChangeCounts& changes) {
  bool is_any = false;
  for (const v1::CheckpointFile& file : commit.files()) {
    const auto hash = HashOfSize(JoinPath(folder, file.name()), file.size());
    if (hash.ok() && *hash == file.hash()) continue;
    ++changes[file.name()];
    is_any = true;
  }
  return is_any;
}

}  // namespace

CheckpointUploader::CheckpointUploader(v1::AgentService::StubInterface& stub, Session& session,
                                       Rng& rng, std::function<void()> on_change)
    : stub_(stub), session_(session), on_change_(std::move(on_change)), queue_(rng) {}

CheckpointUploader::~CheckpointUploader() {
  Stop();
}

void CheckpointUploader::Start() {
  thread_ = std::thread([this] { Run(); });
}

void CheckpointUploader::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  token_.Cancel();
  if (thread_.joinable()) thread_.join();
}

void CheckpointUploader::SetTargets(std::vector<UploadTarget> targets) {
  absl::MutexLock lock(&mutex_);
  if (queue_.SetTargets(std::move(targets))) changed_ = true;
}

CheckpointUploader::Progress CheckpointUploader::ProgressOf(AttemptId id) const {
  absl::MutexLock lock(&mutex_);
  return queue_.ProgressOf(id);
}

void CheckpointUploader::Run() {
  absl::Duration wait = absl::ZeroDuration();
  while (true) {
    std::optional<CheckpointQueue::Upload> upload;
    {
      absl::MutexLock lock(&mutex_);
      const auto woken = [this]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || changed_; };
      mutex_.AwaitWithTimeout(absl::Condition(&woken), wait);
      if (stop_) return;
      changed_ = false;
      upload = queue_.Next();
    }
    if (upload.has_value()) {
      wait = UploadNext(*upload);
    } else {
      // An attempt may be done because it has nothing to send. The next checkpoint comes with new
      // targets.
      on_change_();
      wait = absl::InfiniteDuration();
    }
  }
}

absl::Duration CheckpointUploader::UploadNext(const CheckpointQueue::Upload& upload) {
  if (session_.Get().empty()) {
    absl::MutexLock lock(&mutex_);
    return queue_.PauseWithoutSession();
  }
  const absl::Status status = UploadStep(upload.target, upload.step);
  std::optional<absl::Duration> pause;
  {
    absl::MutexLock lock(&mutex_);
    pause = queue_.Ended(upload.target.id, upload.step, status);
  }
  if (pause.has_value()) return *pause;
  if (status.ok()) {
    LogInfo(upload.step == kOutputsStep ? "outputs committed" : "checkpoint committed",
            {{"attempt", AttemptName(upload.target.id)}, {"step", absl::StrCat(upload.step)}});
  } else {
    LogWarning(upload.step == kOutputsStep ? "outputs are not sent" : "a checkpoint is not sent",
               {{"attempt", AttemptName(upload.target.id)},
                {"step", absl::StrCat(upload.step)},
                {"error", std::string(status.message())}});
  }
  on_change_();
  return absl::ZeroDuration();
}

template <typename Request, typename Call>
absl::Status CheckpointUploader::Send(const UploadTarget& target, int64_t step, Request& request,
                                      Call call) {
  const std::string session = session_.Get();
  // The link may have lost the session since the last call. Without one the server would refuse the
  // request as malformed, and nothing would be sent again.
  if (session.empty()) return absl::UnavailableError("there is no session with the server");
  request.set_session(session);
  request.set_attempt(AttemptName(target.id));
  request.set_fencing_token(target.fencing_token);
  request.set_is_output(step == kOutputsStep);
  request.set_step(std::max<int64_t>(step, 0));
  grpc::ClientContext context;
  rpc::SetTimeout(context, kUploadTimeout);
  const CancelToken::Scope scope(token_, context);
  absl::Status status = rpc::FromGrpcStatus(call(&context));
  // The link registers again, and the upload continues under the new session.
  if (ErrorReason(status) == "UNKNOWN_SESSION") session_.Forget(session);
  return status;
}

absl::Status CheckpointUploader::SendOutputs(const UploadTarget& target, const std::string& folder,
                                             v1::CommitCheckpointRequest& commit) {
  for (const v1::CheckpointFile& file : commit.files()) {
    TY_RETURN_IF_ERROR(SendFile(target, kOutputsStep, JoinPath(folder, file.name()), file));
  }
  return Send(target, kOutputsStep, commit, [&](grpc::ClientContext* context) {
    v1::CommitCheckpointResponse response;
    return stub_.CommitCheckpoint(context, commit, &response);
  });
}

absl::Status CheckpointUploader::UploadOutputs(const UploadTarget& target) {
  ChangeCounts changes;
  for (int tries = 1;; ++tries) {
    run_dir::OutputsPlan plan;
    v1::CommitCheckpointRequest commit;
    {
      const ActAs as(target.owner);
      auto read = run_dir::ReadOutputsPlan(target.dir);
      if (!read.ok()) return OfFile(target.dir.OutputsPath(), read.status());
      plan = *std::move(read);
      ListOutputs(plan, changes, commit);
    }
    if (commit.files().empty() && commit.left_out().empty()) return absl::OkStatus();
    const absl::Status sent = SendOutputs(target, plan.folder, commit);
    const bool may_have_changed = absl::IsDataLoss(sent) || absl::IsNotFound(sent);
    if (!may_have_changed || tries >= kOutputTries) return sent;
    const ActAs as(target.owner);
    if (!CountChanges(plan.folder, commit, changes)) return sent;
  }
}

absl::Status CheckpointUploader::UploadStep(const UploadTarget& target, int64_t step) {
  if (step == kOutputsStep) return UploadOutputs(target);
  const std::string folder = checkpoint::CheckpointPath(target.dir.CheckpointsDir(), step);
  absl::StatusOr<checkpoint::Manifest> verified = [&] {
    const ActAs as(target.owner);
    return checkpoint::VerifyCheckpoint(folder);
  }();
  if (!verified.ok()) return OfFile(folder, verified.status());
  const checkpoint::Manifest& manifest = *verified;
  v1::CommitCheckpointRequest commit;
  for (const checkpoint::ManifestEntry& entry : manifest.files) {
    v1::CheckpointFile& file = *commit.add_files();
    file = EntryToProto(entry);
    TY_RETURN_IF_ERROR(SendFile(target, step, JoinPath(folder, entry.name), file));
  }
  return Send(target, step, commit, [&](grpc::ClientContext* context) {
    v1::CommitCheckpointResponse response;
    return stub_.CommitCheckpoint(context, commit, &response);
  });
}

absl::Status CheckpointUploader::SendFile(const UploadTarget& target, int64_t step,
                                          const std::string& path, const v1::CheckpointFile& file) {
  // The first, empty chunk asks for the offset at which to continue.
  int64_t offset = 0;
  for (bool asked = false; !asked || offset < file.size(); asked = true) {
    v1::AppendCheckpointFileRequest request;
    *request.mutable_file() = file;
    request.set_offset(offset);
    if (asked) {
      const int64_t length = std::min(kChunkBytes, file.size() - offset);
      absl::StatusOr<std::string> data = [&] {
        const ActAs as(target.owner);
        return ReadRegularFileRange(path, offset, length);
      }();
      if (!data.ok()) return OfFile(path, data.status());
      request.set_data(*std::move(data));
      if (request.data().empty()) return error::CorruptFile(path, "it has become shorter");
    }
    v1::AppendResponse response;
    const absl::Status status = Send(target, step, request, [&](grpc::ClientContext* context) {
      return stub_.AppendCheckpointFile(context, request, &response);
    });
    const int64_t expected = ExpectedOffset(status);
    if (expected >= 0 && expected != offset) {
      offset = expected;
      continue;
    }
    TY_RETURN_IF_ERROR(status);
    if (asked && response.next_offset() <= offset) {
      return absl::UnavailableError(absl::StrCat("the server acknowledges offset ",
                                                 response.next_offset(), " of '", path,
                                                 "' after bytes from ", offset));
    }
    offset = response.next_offset();
  }
  return absl::OkStatus();
}

}  // namespace trainyard::agent
