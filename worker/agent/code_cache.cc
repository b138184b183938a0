// The daemon fetches and verifies; what it unpacks, it writes as the owner of the job.
#include "worker/agent/code_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/code_errors.h"
#include "common/base/errors.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/code/archive.h"
#include "common/rpc/status.h"
#include "common/tls/digest.h"
#include "worker/agent/act_as.h"

namespace trainyard::agent {
namespace {

constexpr absl::Duration kWaitForOther = absl::Milliseconds(50);
constexpr absl::string_view kPartial = ".partial";

// Cancels a call that brings nothing for too long. A deadline for the whole call would end a
// download that a slow line needs longer for, again and again.
class SilenceGuard {
 public:
  SilenceGuard(grpc::ClientContext& call, absl::Duration limit) : call_(call), limit_(limit) {
    thread_ = std::thread([this] { Run(); });
  }
  ~SilenceGuard() { End(); }

  void NoteProgress() {
    const absl::MutexLock lock(&mutex_);
    ++progress_;
  }
  // Watches the call no longer. Returns true if it was cancelled.
  bool End() {
    {
      const absl::MutexLock lock(&mutex_);
      has_ended_ = true;
    }
    if (thread_.joinable()) thread_.join();
    const absl::MutexLock lock(&mutex_);
    return has_cancelled_;
  }

 private:
  void Run() {
    const absl::MutexLock lock(&mutex_);
    while (!has_ended_) {
      const auto is_heard = [this, seen = progress_]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return has_ended_ || progress_ != seen;
      };
      if (mutex_.AwaitWithTimeout(absl::Condition(&is_heard), limit_)) continue;
      has_cancelled_ = true;
      call_.TryCancel();
      return;
    }
  }

  grpc::ClientContext& call_;
  const absl::Duration limit_;
  absl::Mutex mutex_;
  int64_t progress_ ABSL_GUARDED_BY(mutex_) = 0;
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Writes all that the server sends, and returns the digest of it.
absl::StatusOr<std::string> Download(v1::AgentService::StubInterface& stub,
                                     const CodeSource& source, const std::string& path,
                                     absl::Duration silence_max, CancelToken& token) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  v1::DownloadCodeRequest request;
  request.set_name(source.job);
  grpc::ClientContext context;
  const CancelToken::Scope scope(token, context);
  SilenceGuard guard(context, silence_max);
  const auto reader = stub.FetchCode(&context, request);
  v1::DownloadCodeResponse response;
  tls::Sha256Hasher hasher;
  int64_t size = 0;
  absl::Status local;
  while (local.ok() && reader->Read(&response)) {
    guard.NoteProgress();
    size += static_cast<int64_t>(response.data().size());
    if (size > code::kArchiveBytesMax) {
      local = error::CodeTooLarge(absl::StrCat("the server sends more than ", size, " bytes"));
      break;
    }
    hasher.Update(response.data());
    local = WriteFully(fd.get(), response.data(), path);
  }
  if (!local.ok()) context.TryCancel();
  const absl::Status finished = rpc::FromGrpcStatus(reader->Finish());
  const bool was_silent = guard.End();
  TY_RETURN_IF_ERROR(local);
  if (was_silent && !finished.ok()) {
    return absl::UnavailableError(absl::StrCat("nothing more of the code of ", source.job,
                                               " came for ", absl::FormatDuration(silence_max)));
  }
  TY_RETURN_IF_ERROR(finished);
  if (fsync(fd.get()) != 0) return ErrnoStatus(errno, "cannot sync", path);
  return hasher.Text();
}

// An archive whose digest is right and that is wrong was wrong when its user sent it.
absl::Status Refused(const absl::Status& status) {
  const std::string reason = ErrorReason(status);
  if (!absl::IsDataLoss(status) && reason != error::kCodeTooLarge) return status;
  return error::CodeRefused(status.message());
}

}  // namespace

CodeCache::CodeCache(const std::string& state_dir, Clock& clock, int64_t bytes_max,
                     absl::Duration silence_max)
    : folder_(JoinPath(state_dir, "code")),
      clock_(clock),
      bytes_max_(bytes_max),
      silence_max_(silence_max) {
  const auto names = ListDirectory(folder_);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (absl::EndsWith(name, kPartial)) (void)unlink(JoinPath(folder_, name).c_str());
  }
}

absl::Status CodeCache::Begin(const std::string& digits, CancelToken& token) {
  while (true) {
    {
      const absl::MutexLock lock(&mutex_);
      if (fetching_.insert(digits).second) return absl::OkStatus();
    }
    if (token.cancelled()) return absl::CancelledError("the code is no longer wanted");
    clock_.SleepFor(kWaitForOther);
  }
}

void CodeCache::End(const std::string& digits) {
  const absl::MutexLock lock(&mutex_);
  fetching_.erase(digits);
}

absl::StatusOr<UniqueFd> CodeCache::OpenWhole(const std::string& path,
                                              const std::string& digest) const {
  TY_ASSIGN_OR_RETURN(UniqueFd fd, OpenRegularFile(path, O_RDONLY));
  tls::Sha256Hasher hasher;
  std::string block(size_t{1} << 20, '\0');
  while (true) {
    const ssize_t got = read(fd.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "cannot read", path);
    if (got == 0) break;
    hasher.Update(absl::string_view(block.data(), static_cast<size_t>(got)));
  }
  if (hasher.Text() != digest) return error::CorruptFile(path, "its digest is wrong");
  // The time of its last use.
  (void)futimens(fd.get(), nullptr);
  if (lseek(fd.get(), 0, SEEK_SET) != 0) return ErrnoStatus(errno, "cannot seek in", path);
  return fd;
}

absl::StatusOr<UniqueFd> CodeCache::Take(v1::AgentService::StubInterface& stub,
                                         const CodeSource& source, CancelToken& token) {
  TY_ASSIGN_OR_RETURN(const std::string digits, tls::Sha256Digits(source.digest));
  TY_RETURN_IF_ERROR(MakeDirectories(folder_, 0700));
  TY_RETURN_IF_ERROR(Begin(digits, token));
  const auto end = absl::MakeCleanup([&] { End(digits); });
  const std::string path = JoinPath(folder_, digits);
  if (auto whole = OpenWhole(path, source.digest); whole.ok()) return whole;
  const std::string partial = absl::StrCat(path, kPartial);
  auto drop = absl::MakeCleanup([&partial] { (void)unlink(partial.c_str()); });
  TY_ASSIGN_OR_RETURN(const std::string digest,
                      Download(stub, source, partial, silence_max_, token));
  if (digest != source.digest) {
    return error::CorruptFile("the code",
                              absl::StrCat("the server sent ", digest, " for ", source.digest));
  }
  if (rename(partial.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, "cannot rename to", path);
  }
  std::move(drop).Cancel();
  TY_ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(path, O_RDONLY));
  MakeRoom();
  return fd;
}

// An archive that is removed while another thread unpacks it stays readable there.
void CodeCache::MakeRoom() {
  struct Known {
    absl::Time used;
    int64_t size;
    std::string path;
  };
  const auto names = ListDirectory(folder_);
  if (!names.ok()) return;
  std::vector<Known> known;
  int64_t bytes = 0;
  for (const std::string& name : *names) {
    struct stat info {};
    const std::string path = JoinPath(folder_, name);
    if (stat(path.c_str(), &info) != 0) continue;
    bytes += info.st_size;
    // Another thread is downloading it.
    if (absl::EndsWith(name, kPartial)) continue;
    known.push_back({absl::TimeFromTimespec(info.st_mtim), info.st_size, path});
  }
  std::sort(known.begin(), known.end(),
            [](const Known& a, const Known& b) { return a.used < b.used; });
  for (const Known& oldest : known) {
    if (bytes <= bytes_max_) return;
    if (unlink(oldest.path.c_str()) == 0) bytes -= oldest.size;
  }
}

absl::Status CodeCache::Unpack(v1::AgentService::StubInterface& stub, const CodeSource& source,
                               const std::string& folder, const FileOwner& owner,
                               CancelToken& token) {
  TY_ASSIGN_OR_RETURN(const UniqueFd archive, Take(stub, source, token));
  const ActAs as(owner);
  TY_RETURN_IF_ERROR(RemoveTree(folder));
  TY_RETURN_IF_ERROR(MakeDirectories(folder, 0700));
  const absl::Status unpacked = code::Unpack(archive.get(), folder);
  if (unpacked.ok()) return unpacked;
  (void)RemoveTree(folder);
  return Refused(unpacked);
}

}  // namespace trainyard::agent
