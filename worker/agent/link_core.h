// Implements the link to the scheduler without its thread: it decides which call is due, and what
// its answer means. One call is under way at a time. After an answer the next sync waits for a
// report that has acted upon it, so that the server never takes an older report for the answer to a
// newer order.
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

// The core. It is not thread-safe, and borrows `session` and `rng`.
class LinkCore {
 public:
  // The lease if the server's answer to a registration states none.
  static constexpr absl::Duration kDefaultLease = absl::Seconds(15);
  static constexpr absl::Duration kDefaultSyncInterval = absl::Seconds(5);

  // The steps that may be due.
  struct AwaitReport {};  // nothing to do until SetReport brings news
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

  // While something runs, its progress is reported this often.
  static constexpr absl::Duration kProgressInterval = absl::Seconds(1);

  LinkCore(std::vector<Device> devices, Session& session, Rng& rng,
           absl::Duration progress_interval = kProgressInterval);

  // Sets the newest report. An urgent one interrupts a sync that the server may hold.
  void SetReport(Report report, bool urgent);
  // Returns true if urgent news came after the last sync was made, so that it must be cancelled and
  // the next one made. The next one is then answered at once, and is not interrupted itself.
  // Otherwise news that come faster than the server answers would let every answer go to a call
  // that has been cancelled, and the lease would end although the server is there.
  bool is_interrupted() const { return has_urgent_news_ && !is_prompt_; }

  // Returns the step that is due now. A pause is requested once. A call is due until one of the
  // functions below reports its end.
  Step Next();

  void Registered(std::string session, absl::Duration lease_duration, absl::Duration sync_interval);
  // Notes the answer to a sync that was sent at the uptime `sent_at`, and returns it for the daemon
  // to act upon.
  Desired Answered(Desired desired, absl::Duration sent_at);
  // Notes that a call failed. `session` is empty for a registration.
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
  bool has_urgent_news_ = false;  // since the last sync was made
  bool is_prompt_ = false;        // the last sync is answered at once
  std::optional<Report> report_;
  // These start again with each session.
  std::optional<Report> sent_;
  int64_t sequence_ = 0;
  // The number of syncs whose answers have arrived. It is sent to the server, so that the server
  // notices a worker that reports but does not hear.
  int64_t answers_heard_ = 0;
  // Counts the answers in this run of the daemon.
  int64_t serial_ = 0;
};

}  // namespace trainyard::agent
