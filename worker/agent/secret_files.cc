// Makes the files so that no other user can have put something in their place.
#include "worker/agent/secret_files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/status.h"
#include "worker/agent/act_as.h"
#include "worker/run_dir/secrets.h"

namespace trainyard::agent {
namespace {

constexpr absl::Duration kSecretsTimeout = absl::Seconds(10);
constexpr size_t kHostBytes = 16;

constexpr char kAccessList[] = "system.posix_acl_access";

bool IsTmpfs(const std::string& path) {
  struct statfs info {};
  return statfs(path.c_str(), &info) == 0 && info.f_type == TMPFS_MAGIC;
}

// Makes our folder, or takes one that is ours alone.
bool TakeBase(const std::string& path) {
  if (mkdir(path.c_str(), 0711) != 0 && errno != EEXIST) return false;
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) {
    LogWarning("a folder for secrets belongs to somebody else and is not used", {{"path", path}});
    return false;
  }
  // Owners pass through it to their own folders, and cannot list it.
  return chmod(path.c_str(), 0711) == 0;
}

bool HasAccessLists(const std::string& path) {
  return getxattr(path.c_str(), kAccessList, nullptr, 0) >= 0 || errno == ENODATA;
}

// Lets one user besides the owner of the file do this with it, and nobody else anything.
absl::Status Allow(const std::string& path, uint16_t owners, uid_t uid, uint16_t rights) {
  constexpr auto kNoId = static_cast<uint32_t>(ACL_UNDEFINED_ID);
  struct {
    posix_acl_xattr_header header;
    std::array<posix_acl_xattr_entry, 5> entries;
  } const list = {{POSIX_ACL_XATTR_VERSION},
                  {{{ACL_USER_OBJ, owners, kNoId},
                    {ACL_USER, rights, uid},
                    {ACL_GROUP_OBJ, 0, kNoId},
                    {ACL_MASK, rights, kNoId},
                    {ACL_OTHER, 0, kNoId}}}};
  if (setxattr(path.c_str(), kAccessList, &list, sizeof list, 0) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, "cannot set the access list of", path);
}

absl::Status WriteSecret(const std::string& path, const std::string& value) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd,
                      OpenFile(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600));
  if (fchmod(fd.get(), 0600) != 0) return ErrnoStatus(errno, "cannot change the mode of", path);
  return WriteFully(fd.get(), value, path);
}

// Returns digits that tell this state directory from those of other daemons.
std::string HostKey(const std::string& state_dir) {
  const std::string hash = ContentHash(state_dir);  // "xxh3-128:..."
  return hash.substr(hash.find(':') + 1, kHostBytes);
}

// Names come from the server, but a path must never lead out of the folder.
bool IsFileName(const std::string& name) {
  return !name.empty() && name[0] != '.' && !absl::StrContains(name, '/');
}

}  // namespace

absl::StatusOr<Secrets> FetchSecrets(v1::AgentService::StubInterface& stub, Session& session,
                                     AttemptId attempt, int64_t fencing_token, CancelToken& token) {
  const std::string id = session.Get();
  if (id.empty()) return absl::UnavailableError("there is no session with the server yet");
  v1::FetchSecretsRequest request;
  request.set_session(id);
  request.set_attempt(AttemptName(attempt));
  request.set_fencing_token(fencing_token);
  v1::FetchSecretsResponse response;
  grpc::ClientContext context;
  rpc::SetTimeout(context, kSecretsTimeout);
  const CancelToken::Scope scope(token, context);
  const absl::Status status = rpc::FromGrpcStatus(stub.FetchSecrets(&context, request, &response));
  if (ErrorReason(status) == "UNKNOWN_SESSION") {
    session.Forget(id);
    return absl::UnavailableError(status.message());
  }
  TY_RETURN_IF_ERROR(status);
  Secrets secrets;
  for (const auto& [name, value] : response.secrets()) secrets[name] = value;
  return secrets;
}

std::vector<std::string> SecretFiles::SystemPlaces() {
  // The files of a user in /dev/shm may go when that user logs out, so root takes /run.
  if (geteuid() == 0) return {"/run", "/dev/shm"};
  return {"/dev/shm"};
}

SecretFiles::SecretFiles(const std::string& state_dir, Sweeper& sweeper,
                         const std::vector<std::string>& places)
    : host_(HostKey(state_dir)), sweeper_(sweeper) {
  for (const std::string& place : places) {
    if (!IsTmpfs(place)) continue;
    const std::string base = JoinPath(place, absl::StrCat(run_dir::kSecretsBase, "-", geteuid()));
    if (!TakeBase(base)) continue;
    base_ = base;
    has_access_lists_ = HasAccessLists(base);
    return;
  }
}

std::string SecretFiles::FolderOf(AttemptId attempt) const {
  return JoinPath(base_, run_dir::SecretsFolderName(host_, attempt.job.value, attempt.number));
}

bool SecretFiles::IsInMemory(const FileOwner& owner) const {
  return !base_.empty() && (owner.is_self || has_access_lists_);
}

absl::Status SecretFiles::WriteInMemory(const std::string& folder, const FileOwner& owner,
                                        const Secrets& secrets) const {
  if (mkdir(folder.c_str(), 0700) != 0) {
    return ErrnoStatus(errno, "cannot create directory", folder);
  }
  for (const auto& [name, value] : secrets) {
    const std::string path = JoinPath(folder, name);
    TY_RETURN_IF_ERROR(WriteSecret(path, value));
    if (!owner.is_self) {
      TY_RETURN_IF_ERROR(Allow(path, ACL_READ | ACL_WRITE, owner.uid, ACL_READ));
    }
  }
  if (owner.is_self) return absl::OkStatus();
  return Allow(folder, ACL_READ | ACL_WRITE | ACL_EXECUTE, owner.uid, ACL_READ | ACL_EXECUTE);
}

absl::Status SecretFiles::Write(const run_dir::RunDir& dir, AttemptId attempt,
                                const FileOwner& owner, const Secrets& secrets) const {
  for (const auto& [name, value] : secrets) {
    if (IsFileName(name)) continue;
    return absl::InvalidArgumentError(absl::StrCat("'", name, "' is no name of a secret"));
  }
  Remove(dir, attempt, owner);
  const std::string path = run_dir::SecretsPath(dir);
  if (IsInMemory(owner)) {
    const std::string folder = FolderOf(attempt);
    TY_RETURN_IF_ERROR(WriteInMemory(folder, owner, secrets));
    const ActAs as(owner);
    if (symlink(folder.c_str(), path.c_str()) == 0) return absl::OkStatus();
    return ErrnoStatus(errno, "cannot link", path);
  }
  const ActAs as(owner);
  TY_RETURN_IF_ERROR(MakeDirectories(path, 0700));
  for (const auto& [name, value] : secrets) {
    TY_RETURN_IF_ERROR(WriteSecret(JoinPath(path, name), value));
  }
  return absl::OkStatus();
}

void SecretFiles::Remove(const run_dir::RunDir& dir, AttemptId attempt,
                         const FileOwner& owner) const {
  const auto warn = [attempt](const absl::Status& status) {
    if (status.ok()) return;
    LogWarning("secrets of an attempt cannot be removed",
               {{"attempt", AttemptName(attempt)}, {"error", std::string(status.message())}});
  };
  // It holds what this daemon has written.
  if (!base_.empty()) warn(RemoveTree(FolderOf(attempt)));
  const std::string path = run_dir::SecretsPath(dir);
  {
    const ActAs as(owner);
    if (unlink(path.c_str()) == 0 || errno == ENOENT) return;
  }
  // It is a folder of the owner, who may have put any number of files there. Nobody else can
  // exchange the folders above it, and a rename follows no link at the end of the path.
  static std::atomic<int64_t> count = 0;
  warn(
      sweeper_.MoveAway(path, absl::StrCat(attempt.job.value, ".", attempt.number, ".secrets.",
                                           absl::ToUnixNanos(Clock::Real()->Now()), ".", ++count)));
}

void SecretFiles::RemoveAllBut(const std::set<AttemptId>& attempts) const {
  if (base_.empty()) return;
  const auto names = ListDirectory(base_);
  if (!names.ok()) return;
  std::set<std::string> kept;
  for (const AttemptId attempt : attempts) {
    kept.insert(run_dir::SecretsFolderName(host_, attempt.job.value, attempt.number));
  }
  for (const std::string& name : *names) {
    if (!absl::StartsWith(name, host_ + ".") || kept.contains(name)) continue;
    LogInfo("removing secrets that a crash has left", {{"folder", name}});
    (void)RemoveTree(JoinPath(base_, name));
  }
}

}  // namespace trainyard::agent
