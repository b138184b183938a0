// Records when each worker was heard, under which session, and what it reported last. None of it is
// stored: after a start of the server, every worker has one lease to come back.
//
// A worker whose reports arrive may still not hear the answers: a partition can cut one direction
// only, and a call that hangs looks from here like one that was answered. Such a worker can be told
// neither to start nor to stop anything. So the lease is renewed only by a report that shows that
// the worker hears (ShowsHearing), and a worker that is UNREACHABLE or GONE comes back only by such
// a report. Everything else that it says is still taken while it is ACTIVE. A registration shows
// nothing: a worker that does not hear of its session registers again and again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/core/lifecycle/records.h"
#include "server/core/scheduling/worker_users.h"
#include "server/core/yard/inputs.h"

namespace trainyard::core {

// The knowledge about one worker. Deadlines and moments are uptimes, unless a name says otherwise.
struct Contact {
  // An attempt as the worker has reported it last.
  struct Observed {
    int64_t fencing_token = 0;
    ObservedState state = ObservedState::kStarting;

    friend bool operator==(const Observed&, const Observed&) = default;
  };

  // Empty if there was none since the server started, or if it has ended.
  std::string session;
  bool synced = false;        // the session has reported what runs
  int64_t sequence = 0;       // of the newest report
  int64_t answers_heard = 0;  // as the worker counts them; 0 also if it does not count
  // The newest desired state that the worker has taken over.
  int64_t revision_taken = 0;
  int64_t last_seen_wall_us = 0;             // wall time of the last report
  int64_t last_report_us = 0;                // uptime of the last report
  int64_t last_hearing_us = 0;               // of the last report that showed that the worker hears
  int64_t unreachable_since_us = 0;          // while UNREACHABLE
  std::map<AttemptId, Observed> observed;    // of the last report
  std::vector<DesiredAttempt> desired;       // as of desired_revision
  int64_t desired_revision = 0;              // 0 if the session has no orders yet
  bool leaves = false;                       // the daemon is to end, as of the last report
  std::map<std::string, std::string> usage;  // of the last report, by name of the device
  // These were told last, in this session or an earlier one. It is null if they never were.
  std::shared_ptr<const WorkerDatasets> datasets;
  // These are the users of its registration and of its last report.
  WorkerUsers users;

  // Returns true if the worker reports but has not heard the answers.
  bool is_deaf() const { return last_report_us > last_hearing_us; }
};

// The contacts of all workers. The class is not thread-safe.
class Contacts {
 public:
  explicit Contacts(int64_t lease_us) : lease_us_(lease_us) {}

  // Adds a worker of the store at the start of the server. Its lease begins.
  void Expect(const WorkerRecord& worker, Now now);
  // Begins a session, which was never used before, and ends the worker's old one. A new worker has
  // a lease from now. The lease and the deadlines of any other worker continue and are not renewed.
  void Open(const std::string& worker, const std::string& session, Now now);
  // Notes the only user whose jobs the worker runs, if there is one.
  void SetOnlyUser(const std::string& worker, const std::string& user);
  // Notes that a worker that a provider could bring would tell this user from others.
  void Name(const std::string& user);
  // Returns true if a worker has ever said whether it runs jobs of this user.
  bool Names(absl::string_view user) const { return named_users_.contains(user); }
  // Returns the users who were named since the last call, for the first time.
  std::set<std::string, std::less<>> TakeNewlyNamed() { return std::exchange(newly_named_, {}); }
  // Ends the session. What remains is the time at which the worker was last seen.
  void Close(const std::string& worker);
  // Ends the session, and knows the worker no longer.
  void Forget(const std::string& worker);

  // Returns null if the session has ended or never existed.
  const std::string* WorkerOf(absl::string_view session) const;
  // Returns the contact of a worker, which must be known.
  const Contact& of(const std::string& worker) const { return contacts_.at(worker); }
  // Returns null for an unknown worker.
  const Contact* Find(absl::string_view worker) const;

  // Returns true if the report proves that an answer has reached the worker, or that the worker has
  // missed none. That is so for
  //   - the first report of a session, because the worker has heard of the session,
  //   - a report that counts more answers than the one before,
  //   - a report without a count, if the worker has acted upon the newest orders, or upon newer
  //     ones than before.
  static bool ShowsHearing(const Contact& contact, const SyncReport& report);
  // Notes a report. Renews the lease if the report shows that the worker hears.
  void NoteReport(const std::string& worker, const SyncReport& report, Now now);
  // Takes what the report says of attempts, devices and data sets. Returns true if it is the first
  // report of the session, or if the attempts or the data sets differ from those of the last one.
  bool TakeReport(const std::string& worker, const SyncReport& report);
  // Returns the uptime until which an ACTIVE worker stays ACTIVE.
  int64_t LeaseDeadline(const std::string& worker) const;
  // Notes that the lease has run out. The ranks count as alone only from one lease after the
  // worker's last report, because an answer to that report may still have renewed their lease.
  void LoseTouch(const std::string& worker);

  // Sets new orders for the worker, unless it has no session or has these orders already. Returns
  // true if they are new; they then have a new revision.
  bool GiveOrders(const std::string& worker, std::vector<DesiredAttempt> desired);

 private:
  int64_t lease_us_;
  std::map<std::string, Contact, std::less<>> contacts_;      // by worker; holds every worker
  std::map<std::string, std::string, std::less<>> sessions_;  // from session to worker
  int64_t last_revision_ = 0;
  // These grow only. A name too many costs the scheduler a little time.
  std::set<std::string, std::less<>> named_users_;
  std::set<std::string, std::less<>> newly_named_;
};

}  // namespace trainyard::core
