// Links a key into place, which makes it appear complete and refuses to replace another value.
#include "worker/run_dir/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::run_dir {
namespace {

std::string KeyPath(const RunDir& dir, absl::string_view key) {
  return JoinPath(dir.RendezvousDir(), key);
}

bool IsKeyCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
}

}  // namespace

absl::Status CheckRendezvousKey(absl::string_view key) {
  const bool good = !key.empty() && key.size() <= kMaxRendezvousKey &&
                    std::all_of(key.begin(), key.end(), IsKeyCharacter) && key != "." &&
                    key != ".." && !IsTemporaryName(key);
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rendezvous key ", JsonQuote(key.substr(0, kMaxRendezvousKey)),
                   " is not of the form [A-Za-z0-9_.-]{1,", kMaxRendezvousKey, "}"));
}

absl::Status SetRendezvousKey(const RunDir& dir, absl::string_view key, absl::string_view value) {
  TY_RETURN_IF_ERROR(CheckRendezvousKey(key));
  if (static_cast<int64_t>(value.size()) > kMaxRendezvousValue) {
    return absl::InvalidArgumentError(absl::StrCat("rendezvous key '", key, "': the value has ",
                                                   value.size(), " bytes; at most ",
                                                   kMaxRendezvousValue, " are allowed"));
  }
  TY_RETURN_IF_ERROR(MakeDirectories(dir.RendezvousDir()));
  const std::string path = KeyPath(dir, key);
  // A hard link appears complete and refuses to replace; a rename would replace. The unique part of
  // the name keeps threads of one process apart.
  const std::string temporary = absl::StrCat(path, "-", Rng::Real()->Next(), ".tmp.", getpid());
  TY_RETURN_IF_ERROR(ReplaceFile(temporary, value));
  const int rc = link(temporary.c_str(), path.c_str());
  const int link_errno = errno;
  unlink(temporary.c_str());
  if (rc == 0) return absl::OkStatus();
  if (link_errno != EEXIST) return ErrnoStatus(link_errno, "cannot create", path);
  TY_ASSIGN_OR_RETURN(const std::string present, GetRendezvousKey(dir, key));
  if (present == value) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("rendezvous key '", key, "' holds another value; a key is written once"));
}

absl::StatusOr<std::string> GetRendezvousKey(const RunDir& dir, absl::string_view key) {
  TY_RETURN_IF_ERROR(CheckRendezvousKey(key));
  return ReadRegularFile(KeyPath(dir, key), kMaxRendezvousValue);
}

absl::StatusOr<std::vector<std::string>> ListRendezvousKeys(const RunDir& dir) {
  auto names = ListDirectory(dir.RendezvousDir());
  if (absl::IsNotFound(names.status())) return std::vector<std::string>();
  TY_RETURN_IF_ERROR(names.status());
  std::erase_if(*names, [](const std::string& name) { return !CheckRendezvousKey(name).ok(); });
  return names;
}

}  // namespace trainyard::run_dir
