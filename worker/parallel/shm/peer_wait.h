// Lets one rank wait for another in shared memory. Only this folder and ../shared use it.
//
// A rank first looks again at once, then lets other threads of its processor run between two looks,
// and then sleeps. Ranks are rarely further apart than the second limit.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "worker/parallel/collective.h"
#include "worker/parallel/shm/shared_segment.h"

namespace trainyard::parallel {

inline constexpr int kBusyLooks = 1000;
inline constexpr absl::Duration kYieldTime = absl::Milliseconds(3);
// A sleeping rank checks this often whether the other one still lives.
inline constexpr absl::Duration kLifeCheckInterval = absl::Milliseconds(10);

enum class PeerWaitEnd { kDone, kPeerLeft, kPeerEnded, kTimedOut };
// Describes the end of a wait as an error of `collective`. `peer` is its name in errors.
absl::Status StatusOf(PeerWaitEnd end, const Collective& collective, int peer,
                      absl::Duration timeout);

// Opens a pidfd, which shows the end of a process. It is invalid for the own process, and if the
// kernel has no pidfds; a lost rank is then noticed by the timeout. Returns NOT_FOUND if the
// process has ended.
absl::StatusOr<UniqueFd> OpenLife(int pid);

// A word that the peer counts up, and the number of threads that sleep on it. A thread that changes
// the word wakes them.
struct WatchedWord {
  std::atomic<uint32_t>& word;
  std::atomic<uint32_t>& sleepers;

  // Both this and the sleeper's announcement are sequentially consistent, so one of the two sees
  // the other.
  void Set(uint32_t value) const {
    word.store(value);
    if (sleepers.load() > 0) FutexWakeAll(word);
  }
};

class PeerWait {
 public:
  // Makes a wait. It has for each rank a borrowed word that becomes not 0 when the rank will do
  // nothing more, and its life. The wait stays awake, but lets others run, for `yield_time`.
  PeerWait(std::vector<const std::atomic<uint32_t>*> left, std::vector<UniqueFd> lives,
           absl::Duration yield_time = kYieldTime);

  // Waits until `is_reached` returns true for the word's value.
  template <typename IsReached>
  PeerWaitEnd Await(int peer, const WatchedWord& watched, absl::Duration deadline,
                    IsReached is_reached) const {
    const auto is_done = [&] { return is_reached(watched.word.load(std::memory_order_acquire)); };
    for (int look = 0; look < kBusyLooks; ++look) {
      if (is_done()) return PeerWaitEnd::kDone;
      Pause();
    }
    const absl::Duration sleep_uptime = Clock::Real()->Uptime() + yield_time_;
    while (!is_done()) {
      // The peer may have done its part before it left, so we look once more.
      if (left_[static_cast<size_t>(peer)]->load() != 0) {
        return is_done() ? PeerWaitEnd::kDone : PeerWaitEnd::kPeerLeft;
      }
      const absl::Duration now = Clock::Real()->Uptime();
      if (now >= deadline) return PeerWaitEnd::kTimedOut;
      if (now < sleep_uptime) {
        sched_yield();
        continue;
      }
      if (HasEnded(peer) && !is_done()) return PeerWaitEnd::kPeerEnded;
      Sleep(watched, std::min(kLifeCheckInterval, deadline - now), is_reached);
    }
    return PeerWaitEnd::kDone;
  }

 private:
  static void Pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  template <typename IsReached>
  static void Sleep(const WatchedWord& watched, absl::Duration time, IsReached is_reached) {
    const uint32_t seen = watched.word.load();
    watched.sleepers.fetch_add(1);
    if (!is_reached(seen)) FutexWait(watched.word, seen, time);
    watched.sleepers.fetch_sub(1);
  }

  bool HasEnded(int peer) const;

  const std::vector<const std::atomic<uint32_t>*> left_;
  const std::vector<UniqueFd> lives_;
  const absl::Duration yield_time_;
};

}  // namespace trainyard::parallel
