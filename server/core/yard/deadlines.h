// Keeps uptimes at which something is due, by owner, with fast access to the earliest.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace trainyard::core {

template <typename Owner>
class Deadlines {
 public:
  // Replaces the owner's deadline. nullopt means none.
  void Set(const Owner& owner, std::optional<int64_t> at_us) {
    if (const auto known = by_owner_.find(owner); known != by_owner_.end()) {
      if (known->second == at_us) return;
      by_time_.erase({known->second, owner});
      by_owner_.erase(known);
    }
    if (!at_us.has_value()) return;
    by_owner_.emplace(owner, *at_us);
    by_time_.emplace(*at_us, owner);
  }

  bool Has(const Owner& owner) const { return by_owner_.count(owner) > 0; }

  std::optional<int64_t> Earliest() const {
    if (by_time_.empty()) return std::nullopt;
    return by_time_.begin()->first;
  }

  // Returns the owners whose deadlines have come, in order.
  std::set<Owner> Due(int64_t now_us) const {
    std::set<Owner> due;
    for (const auto& [at_us, owner] : by_time_) {
      if (at_us > now_us) break;
      due.insert(owner);
    }
    return due;
  }

 private:
  std::map<Owner, int64_t> by_owner_;
  std::set<std::pair<int64_t, Owner>> by_time_;
};

}  // namespace trainyard::core
