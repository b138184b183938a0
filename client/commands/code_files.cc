// The server is trusted with bytes, but not with paths: an archive is read as foreign.
#include "client/commands/code_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/code/archive_cache.h"
#include "client/commands/code_sender.h"
#include "common/base/code_errors.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/tls/digest.h"
#include "common/tls/file_digest.h"

namespace trainyard::commands {
namespace {

constexpr size_t kShownCommit = 12;
constexpr size_t kDiffMax = size_t{64} << 10;
constexpr absl::Duration kDownloadTimeout = absl::Minutes(10);

// Gives what the server streams to `take`.
template <typename Take>
absl::Status Stream(link::ServerLink& link, const std::string& job, v1::CodePart part,
                    const Take& take) {
  v1::DownloadCodeRequest request;
  request.set_name(job);
  request.set_part(part);
  grpc::ClientContext call;
  rpc::SetTimeout(call, kDownloadTimeout);
  const link::Interrupt::Scope scope(link.interrupt(), call);
  const auto reader = link.code().DownloadCode(&call, request);
  v1::DownloadCodeResponse chunk;
  absl::Status failed;
  int64_t bytes = 0;
  while (failed.ok() && reader->Read(&chunk)) {
    bytes += static_cast<int64_t>(chunk.data().size());
    failed = bytes > code::kArchiveBytesMax
                 ? error::CodeTooLarge(absl::StrCat("the server sends more than ", bytes, " bytes"))
                 : take(chunk);
  }
  if (!failed.ok()) call.TryCancel();
  const grpc::Status status = reader->Finish();
  TY_RETURN_IF_ERROR(failed);
  return status.ok() ? absl::OkStatus() : link.Error(status);
}

absl::StatusOr<std::string> DigestOfJob(link::ServerLink& link, const std::string& job) {
  v1::GetJobRequest request;
  request.set_name(job);
  TY_ASSIGN_OR_RETURN(const v1::Job found, link.Call(&v1::JobService::Stub::GetJob, request));
  const std::string& digest = found.resolved_spec().program().code();
  if (!digest.empty()) return digest;
  return error::CodeNotFound(absl::StrCat(
      "job '", job, "' has no code archive; its spec names no folder with program.code"));
}

}  // namespace

absl::StatusOr<std::string> FetchCode(const Context& context, link::ServerLink& link,
                                      const std::string& job) {
  TY_ASSIGN_OR_RETURN(const std::string digest, DigestOfJob(link, job));
  const code::ArchiveCache cache(JoinPath(CacheHome(context), "code"), context.clock);
  TY_RETURN_IF_ERROR(cache.Prepare());
  std::string path = cache.PathOf(digest);
  if (tls::Sha256OfFile(path).value_or("") == digest) return path;
  const std::string partial = absl::StrCat(path, ".", getpid(), ".partial");
  {
    TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(partial, O_WRONLY | O_CREAT | O_TRUNC, 0600));
    const absl::Status streamed =
        Stream(link, job, v1::CODE_PART_ARCHIVE, [&](const v1::DownloadCodeResponse& chunk) {
          return WriteFully(fd.get(), chunk.data(), partial);
        });
    if (!streamed.ok()) {
      (void)unlink(partial.c_str());
      return streamed;
    }
  }
  TY_ASSIGN_OR_RETURN(const std::string got, tls::Sha256OfFile(partial));
  if (got != digest) {
    (void)unlink(partial.c_str());
    return error::CorruptFile("the code",
                              absl::StrCat("it has the digest ", got, "; expected ", digest));
  }
  if (rename(partial.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "cannot rename", path);
  cache.MakeRoom(path);
  return path;
}

absl::StatusOr<std::string> FetchCodeDiff(const Context&, link::ServerLink& link,
                                          const v1::Job& job) {
  std::string diff;
  const std::string& digest = job.provenance().code().diff_digest();
  if (digest.empty()) return diff;
  TY_RETURN_IF_ERROR(
      Stream(link, job.name(), v1::CODE_PART_DIFF, [&](const v1::DownloadCodeResponse& chunk) {
        diff += chunk.data();
        return absl::OkStatus();
      }));
  if (diff.size() > kDiffMax || tls::Sha256Text(diff) != digest) {
    return error::CorruptFile("the differences", "they do not have their digest");
  }
  return diff;
}

absl::StatusOr<std::vector<CodeFile>> ListCode(const std::string& archive) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(archive, O_RDONLY));
  std::vector<CodeFile> files;
  const auto visit = [&files](const code::Entry& entry, code::Content& content) -> absl::Status {
    ContentHasher hasher;
    while (true) {
      TY_ASSIGN_OR_RETURN(const absl::string_view block, content.Next());
      if (block.empty()) break;
      hasher.Update(block);
    }
    files.push_back({entry, entry.kind == code::Entry::Kind::kFile ? hasher.Text() : ""});
    return absl::OkStatus();
  };
  TY_RETURN_IF_ERROR(code::ReadArchive(fd.get(), visit));
  return files;
}

absl::StatusOr<std::string> ReadCodeFile(const std::string& archive, const std::string& path,
                                         size_t bytes_max) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(archive, O_RDONLY));
  std::string text;
  bool is_there = false;
  const auto visit = [&](const code::Entry& entry, code::Content& content) -> absl::Status {
    if (entry.path != path || entry.kind != code::Entry::Kind::kFile) return absl::OkStatus();
    is_there = true;
    while (text.size() < bytes_max) {
      TY_ASSIGN_OR_RETURN(const absl::string_view block, content.Next());
      if (block.empty()) break;
      absl::StrAppend(&text, block);
    }
    return absl::OkStatus();
  };
  TY_RETURN_IF_ERROR(code::ReadArchive(fd.get(), visit));
  if (!is_there) {
    return absl::NotFoundError(
        absl::StrCat("the code has no file '", path, "'; `trainyard code ls` lists its files"));
  }
  return text.substr(0, bytes_max);
}

std::string OriginText(const v1::CodeOrigin& origin) {
  if (origin.commit().empty()) return "";
  return absl::StrCat("commit ", origin.commit().substr(0, kShownCommit),
                      origin.branch().empty() ? "" : " of ", origin.branch(),
                      origin.remote().empty() ? "" : " from ", origin.remote(),
                      origin.is_dirty() ? ", with changes" : "");
}

}  // namespace trainyard::commands
