// The line to the scheduler without its thread: which call is due, and what its answer means. One
// call is under way at a time. After an answer the next sync waits for a report that has acted upon
// it, so that the server never takes an older report for the answer to a newer order.
//
// The link's thread (scheduler_link.h) drives it with gRPC, the simulator with a network that
// loses, delays and doubles calls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/backoff.h"
#include "common/base/env.h"
#include "worker/agent/agent_core.h"
#include "worker/agent/report.h"
#include "worker/agent/session.h"

namespace trainyard::agent {

// Not thread-safe. Borrows `session` and `rng`.
class LinkCore {
 public:
  // Where the server's answer to a registration does not say.
  static constexpr absl::Duration kDefaultLease = absl::Seconds(15);
  static constexpr absl::Duration kDefaultSyncInterval = absl::Seconds(5);

  // The steps that may be due:
  struct AwaitReport {};  // nothing, until SetReport brings news
  struct Pause {
    absl::Duration length;
  };
  struct Register {
    std::vector<Device> devices;
    absl::Duration timeout;
  };
  struct Sync {
    std::string session;
    int64_t sequence = 0;
    int64_t desired_revision = 0;
    int64_t answers_heard = 0;
    absl::Duration max_wait;
    Report report;
    absl::Duration timeout;
  };
  using Step = std::variant<AwaitReport, Pause, Register, Sync>;

  // While something runs, its progress is worth a report this often.
  static constexpr absl::Duration kProgressInterval = absl::Seconds(1);

  LinkCore(std::vector<Device> devices, Session& session, Rng& rng,
           absl::Duration progress_interval = kProgressInterval);

  // The newest report. An urgent one interrupts a sync that is under way.
  void SetReport(Report report, bool urgent);
  // Urgent news came after the last sync was made: it is to be cancelled, and the next one made.
  bool is_interrupted() const { return is_interrupted_; }

  // Returns the step that is due now. A pause is asked for once; a call is due until its end is
  // told by one of the functions below.
  Step Next();

  void Registered(std::string session, absl::Duration lease_duration, absl::Duration sync_interval);
  // The answer to a sync that was sent at the uptime `sent_at`, for the daemon to act upon.
  Desired Answered(Desired desired, absl::Duration sent_at);
  // A call failed; `session` is empty for a registration.
  void Failed(const absl::Status& status, const std::string& session);

 private:
  std::vector<Device> CurrentDevices() const;
  Sync MakeSync(std::string session);

  const std::vector<Device> devices_;
  const absl::Duration progress_interval_;
  Session& session_;
  Backoff backoff_;
  absl::Duration lease_duration_ = kDefaultLease;
  absl::Duration sync_interval_ = kDefaultSyncInterval;
  std::optional<absl::Duration> pause_;
  bool is_interrupted_ = false;
  std::optional<Report> report_;
  // These begin anew with each session:
  std::optional<Report> sent_;
  int64_t sequence_ = 0;
  // The answers to syncs that have come. The server is told of it, so that it notices a worker that
  // speaks and does not hear.
  int64_t answers_heard_ = 0;
  // Counts the answers in the life of this daemon.
  int64_t serial_ = 0;
};

}  // namespace trainyard::agent
