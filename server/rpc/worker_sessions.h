// Remembers what workers may do that do not belong to the host of the server: those of another user
// of the host, and those with a certificate. Each may use the sessions that it began itself, and
// fetch what the server told it to start from: checkpoints, and the code of jobs.
#pragma once

#include <map>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/access/caller.h"

namespace trainyard::rpc {

// Names whoever runs a worker.
std::string PrincipalOf(const access::Caller& caller);

// The sessions. The class is thread-safe. After a restart of the server it is empty, and the
// workers register again.
class WorkerSessions {
 public:
  // The workers that one user may have, besides those of the host.
  static constexpr size_t kOfUserMax = 16;

  // Returns RESOURCE_EXHAUSTED if the caller may not have `worker` besides those that it has.
  absl::Status CheckCount(const access::Caller& caller, const std::string& worker) const;
  // Notes that the caller began `session` for `worker`. An older one of the same worker ends.
  void Begin(const access::Caller& caller, const std::string& worker, const std::string& session);
  // Returns FAILED_PRECONDITION (UNKNOWN_SESSION) if the session is not the caller's.
  absl::Status Check(const access::Caller& caller, const std::string& session) const;
  // Notes that the worker of the session was told to start from a checkpoint, or to run a job with
  // a code archive.
  void Grant(const std::string& session, const std::string& name);
  // Returns NOT_FOUND if the caller was not told to start from the checkpoint, or to run the job.
  absl::Status CheckFetch(const access::Caller& caller, const std::string& name) const;

 private:
  struct Session {
    std::string worker;
    std::string principal;  // see PrincipalOf
    std::set<std::string> granted;
  };

  mutable absl::Mutex mutex_;
  std::map<std::string, Session> sessions_ ABSL_GUARDED_BY(mutex_);  // by session
};

}  // namespace trainyard::rpc
