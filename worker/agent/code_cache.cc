// The daemon fetches and verifies; what it unpacks, it writes as the owner of the job.
#include "worker/agent/code_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
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
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "common/tls/digest.h"
#include "worker/agent/act_as.h"

namespace trainyard::agent {
namespace {

constexpr absl::Duration kCodeTimeout = absl::Seconds(120);
constexpr absl::Duration kWaitForOther = absl::Milliseconds(50);
constexpr absl::string_view kPartial = ".partial";

// Writes all that the server sends, and returns the digest of it.
absl::StatusOr<std::string> Download(v1::AgentService::StubInterface& stub,
                                     const CodeSource& source, const std::string& path,
                                     CancelToken& token) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  v1::DownloadCodeRequest request;
  request.set_name(source.job);
  grpc::ClientContext context;
  rpc::SetTimeout(context, kCodeTimeout);
  const CancelToken::Scope scope(token, context);
  const auto reader = stub.FetchCode(&context, request);
  v1::DownloadCodeResponse response;
  tls::Sha256Hasher hasher;
  int64_t size = 0;
  absl::Status local;
  while (local.ok() && reader->Read(&response)) {
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
  TY_RETURN_IF_ERROR(local);
  TY_RETURN_IF_ERROR(finished);
  if (fsync(fd.get()) != 0) return ErrnoStatus(errno, "cannot sync", path);
  return hasher.Text();
}

// What is wrong with an archive whose digest is right was wrong when its user sent it.
absl::Status Refused(const absl::Status& status) {
  const std::string reason = ErrorReason(status);
  if (!absl::IsDataLoss(status) && reason != error::kCodeTooLarge) return status;
  return error::CodeRefused(status.message());
}

}  // namespace

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
  TY_ASSIGN_OR_RETURN(const std::string digest, Download(stub, source, partial, token));
  if (digest != source.digest) {
    (void)unlink(partial.c_str());
    return error::CorruptFile("the code",
                              absl::StrCat("the server sent ", digest, " for ", source.digest));
  }
  if (rename(partial.c_str(), path.c_str()) != 0) {
    return ErrnoStatus(errno, "cannot rename to", path);
  }
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
    if (absl::EndsWith(name, kPartial) || stat(path.c_str(), &info) != 0) continue;
    known.push_back({absl::TimeFromTimespec(info.st_mtim), info.st_size, path});
    bytes += info.st_size;
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
