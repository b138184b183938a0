// Virtual time, and the story of what happens in it. Everything that happens in a simulated pool is
// an event at a moment; moments follow each other in order, equal ones in the order in which they
// were set.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/core/lifecycle/words.h"
#include "tests/sim/random.h"

namespace trainyard::sim {

// True time, in microseconds since the simulation began. No simulated program can read it.
using Time = int64_t;
using core::kHour;
using core::kMillisecond;
using core::kMinute;
using core::kSecond;

class World {
 public:
  // `tell` means that the story is printed as it happens.
  World(uint64_t seed, bool tell) : random_(seed), tell_(tell) {}

  Time now() const { return now_; }
  Random& random() { return random_; }

  void At(Time when, std::function<void()> event);
  void After(Time delay, std::function<void()> event) { At(now_ + delay, std::move(event)); }
  // Goes to the next event and lets it happen. Returns false if there is none before `limit`.
  bool Step(Time limit);

  // Adds a line to the story. All lines together are hashed, so that two runs of a seed can be
  // compared.
  template <typename... Parts>
  void Say(absl::string_view who, const Parts&... parts) {
    SayLine(who, absl::StrCat(parts...));
  }
  uint64_t hash() const { return hash_; }
  int64_t events() const { return events_; }

  // A promise is broken. The first one counts.
  void Violate(absl::string_view rule, absl::string_view what);
  bool violated() const { return !rule_.empty(); }
  const std::string& rule() const { return rule_; }
  const std::string& what() const { return what_; }

 private:
  struct Event {
    Time when = 0;
    int64_t order = 0;
    std::function<void()> happen;
    bool operator<(const Event& other) const {  // a heap's top is its largest
      return when != other.when ? when > other.when : order > other.order;
    }
  };

  void SayLine(absl::string_view who, const std::string& line);

  Time now_ = 0;
  int64_t events_ = 0;
  std::vector<Event> queue_;  // a heap
  Random random_;
  const bool tell_;
  uint64_t hash_ = 0;
  std::string rule_;
  std::string what_;
};

// The clocks of a host: an uptime that is a little fast or slow, and a wall clock that is
// wrong and jumps.
struct HostClock {
  Time boot = 0;
  int64_t uptime_at_boot = 0;
  int64_t drift_ppm = 0;
  int64_t wall_offset = 0;

  int64_t Uptime(Time now) const {
    const int64_t elapsed = now - boot;
    return uptime_at_boot + elapsed + elapsed * drift_ppm / 1'000'000;
  }
  int64_t Wall(Time now) const { return 1'790'000'000 * kSecond + now + wall_offset; }
  // Returns the first true moment at which Uptime has this value.
  Time WhenUptime(int64_t uptime) const {
    Time when = boot + (uptime - uptime_at_boot) * 1'000'000 / (1'000'000 + drift_ppm) - 2;
    while (Uptime(when) < uptime) ++when;
    return when;
  }
};

}  // namespace trainyard::sim
