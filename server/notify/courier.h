// Delivers word of jobs. It hears of each committed turn, writes what has to be told into its own
// store, and sends it from there, in threads of its own: a dead receiver delays no job, and no
// other receiver.
//
// Nothing is lost and nothing is told twice unless a crash comes between a delivery and the note of
// it, and then the second one has the same id: the store knows the last event that was worked off,
// and the first thing after a start is to work off those behind it.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "server/core/yard/yard.h"
#include "server/notify/addresses.h"
#include "server/notify/webhook.h"
#include "server/runtime/board.h"
#include "server/store/sqlite/notify_store.h"
#include "server/store/store.h"

namespace trainyard::notify {

// The courier. It is thread-safe, and borrows what it is given.
class Courier {
 public:
  // The messages that are sent at the same time, in all and to targets of one user.
  static constexpr int kSenders = 8;
  static constexpr int kSendersOfUser = 2;
  // A receiver that answers to nobody holds a sender until its time is up, so what failed before
  // leaves half of them to the rest.
  static constexpr int kSendersOfRetries = 4;

  struct Options {
    AddressRules rules;
    std::string sendmail;   // empty: no mail
    std::string mail_from;  // empty: the mail system decides
    // A message is tried again after this time, then after four times as long, and so on.
    absl::Duration first_retry = absl::Seconds(2);
    absl::Duration last_retry = absl::Hours(1);
    absl::Duration give_up_after = absl::Hours(12);
    // The number of the store's next event at the start. A new store tells nothing of older ones.
    int64_t next_event = 1;
    // Returns false for users who are to hear nothing any more.
    std::function<bool(const std::string& user)> is_welcome = [](const std::string&) {
      return true;
    };
  };

  Courier(Options options, store::NotifyStore& store, store::Store& events,
          const runtime::Board& board, Clock& clock);
  ~Courier();

  // Begins with what an earlier run has left.
  void Start();
  // Ends what is being sent; it is sent again after the next start. It may be called again.
  void Stop();

  // Takes the events of a turn that is committed and on the board. It never blocks.
  void Take(const core::Turn& turn);

  // Sends a message to a target now. It blocks until that has succeeded or failed, and is tried
  // once.
  store::DeliveryRecord Test(const store::TargetRecord& target);

  const AddressRules& rules() const { return options_.rules; }
  bool sends_mail() const { return !options_.sendmail.empty(); }

 private:
  // Names the receiver of a delivery: it gets one message at a time.
  using Receiver = std::string;

  void Derive();
  absl::Status CatchUp();
  absl::Status WorkOff(const std::vector<core::EventRecord>& events);
  void Deliver();
  // Returns a delivery that is due and whose receiver and owner are not busy, or nothing.
  std::optional<store::DeliveryRecord> TakeDue();
  void Send(store::DeliveryRecord delivery);
  Sent SendOnce(const store::DeliveryRecord& delivery);
  int64_t NowUs() { return absl::ToUnixMicros(clock_.Now()); }

  const Options options_;
  store::NotifyStore& store_;
  store::Store& events_;
  const runtime::Board& board_;
  Clock& clock_;
  std::atomic<bool> is_stopping_ = false;
  // Only the thread that derives uses these: the last event that was worked off, and the last of
  // which the store knows that.
  bool has_begun_ = false;  // the place in the history is known
  int64_t last_event_ = 0;
  int64_t stored_event_ = 0;

  Mutex mutex_;
  CondVar has_events_;
  CondVar has_due_;
  std::deque<core::EventRecord> taken_ ABSL_GUARDED_BY(mutex_);
  std::set<Receiver> busy_receivers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int> busy_users_ ABSL_GUARDED_BY(mutex_);
  int busy_retries_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;  // grows when something may have become due
  std::vector<std::thread> threads_;
};

// Returns the time between a try and the next, after `tries` tries.
absl::Duration RetryDelay(int tries, absl::Duration first, absl::Duration last);

}  // namespace trainyard::notify
