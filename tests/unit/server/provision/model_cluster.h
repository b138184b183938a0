// A cluster in virtual time, with faults by chance: it queues, starts and ends allocations, and its
// answers get lost, fail or come late.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "server/provision/core/inputs.h"

namespace trainyard::provision {

// Chance that a seed fixes.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  // Returns a number in [least, most].
  int64_t Between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(engine_() % static_cast<uint64_t>(most - least + 1));
  }
  bool Chance(int64_t percent) { return Between(0, 99) < percent; }

 private:
  std::mt19937_64 engine_;
};

struct Allocation {
  std::string id;
  std::string name;
  ForeignState state = ForeignState::kWaiting;
  int64_t appear_us = 0;   // when a submission takes effect whose reply was lost
  int64_t start_us = 0;    // when it will start
  int64_t connect_us = 0;  // when its worker will connect
  int64_t end_us = 0;      // when it will end or has ended; 0: not planned
  ForeignState end = ForeignState::kCompleted;
  int64_t silent_until_us = 0;  // its worker is not heard until then
  bool is_draining = false;
  int64_t job = -1;  // the job that it works on
};

inline bool IsAlive(const Allocation& allocation, int64_t now_us) {
  return allocation.appear_us <= now_us && !HasEnded(allocation.state);
}

class ModelCluster {
 public:
  ModelCluster(Dice& dice, int64_t time_limit_us) : dice_(dice), time_limit_us_(time_limit_us) {}

  // Names may be used again after a restore.
  void ForgetSubmissions() { submissions_.clear(); }

  // Faults that come in spells.
  bool refuses = false;       // submissions are refused
  bool starts_badly = false;  // no worker ever connects
  bool is_deaf = false;       // nothing is answered
  bool has_faults = true;     // faults by chance

  SubmitResult Submit(const std::string& name, int64_t now_us);
  void Cancel(const std::string& id, int64_t now_us);
  // Returns what an observer sees who asks now. The answer may be late: see `delay_us`.
  Listing List(int64_t now_us, int64_t& delay_us);
  // Lets time pass.
  void Run(int64_t now_us);
  // Ends what faults have held up.
  void Heal(int64_t now_us);

  std::vector<Allocation>& allocations() { return allocations_; }
  int32_t submissions(const std::string& name) const {
    const auto found = submissions_.find(name);
    return found == submissions_.end() ? 0 : found->second;
  }
  bool IsConnected(const Allocation& allocation, int64_t now_us) const {
    return allocation.state == ForeignState::kActive && allocation.connect_us <= now_us &&
           allocation.silent_until_us <= now_us;
  }

 private:
  void Plan(Allocation& allocation, int64_t now_us);
  void Trouble(Allocation& allocation, int64_t now_us);

  Dice& dice_;
  const int64_t time_limit_us_;
  std::vector<Allocation> allocations_;
  std::map<std::string, int32_t> submissions_;
  int64_t next_id_ = 100;
};

}  // namespace trainyard::provision
