// Implements the lock. It belongs to the open file and ends with the process, however that ends, so
// no lock is ever stale.
#include "worker/run_dir/supervisor_lock.h"

#include <fcntl.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"

namespace trainyard::run_dir {
namespace {

std::string LockPath(const RunDir& dir) {
  return JoinPath(dir.root(), "supervisor.lock");
}

// These are locks of the open file (Linux). Unlike flock they can be queried without being taken.
struct flock WholeFile() {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  return range;
}

}  // namespace

absl::StatusOr<SupervisorLock> SupervisorLock::Acquire(const RunDir& dir) {
  const std::string path = LockPath(dir);
  TY_ASSIGN_OR_RETURN(UniqueFd fd, OpenRegularFile(path, O_RDWR | O_CREAT, 0600));
  struct flock range = WholeFile();
  if (fcntl(fd.get(), F_OFD_SETLK, &range) != 0) {
    if (errno != EAGAIN && errno != EACCES) return ErrnoStatus(errno, "cannot lock", path);
    return MakeError(absl::StatusCode::kFailedPrecondition, "ALREADY_SUPERVISED",
                     absl::StrCat("run directory '", dir.root(),
                                  "' has a supervisor already; one attempt runs once"));
  }
  return SupervisorLock(std::move(fd));
}

absl::StatusOr<bool> IsSupervised(const RunDir& dir) {
  const std::string path = LockPath(dir);
  // The file is opened read-only, because closing a file that was open for writing wakes all who
  // watch the folder, including the caller.
  auto fd = OpenRegularFile(path, O_RDONLY);
  if (absl::IsNotFound(fd.status())) return false;
  TY_RETURN_IF_ERROR(fd.status());
  struct flock range = WholeFile();
  if (fcntl(fd->get(), F_OFD_GETLK, &range) != 0) return ErrnoStatus(errno, "cannot ask", path);
  return range.l_type != F_UNLCK;
}

}  // namespace trainyard::run_dir
