// Searches for an order in which operations that overlapped in time could have happened one after
// the other. It is Wing and Gong's search ("Testing and verifying concurrent objects", 1993) with
// Lowe's memory of what was tried ("Testing for linearizability", 2017): a set of operations that
// were put in order together with the state that they lead to is never tried twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace trainyard::linearizability {

// The return of an operation whose outcome nobody knows: it may take effect at any time after its
// call, or never.
inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// One operation as far as the search knows it.
struct Interval {
  int64_t call = 0;
  int64_t end = kNever;
  // The index of an operation that must have happened before this one can; -1 if there is none.
  int after = -1;
};

enum class Verdict { kExplained, kUnexplained, kGaveUp };

struct Finding {
  Verdict verdict = Verdict::kExplained;
  // The longest order that was found, by the indices of the operations, and the operation that had
  // returned by then and found no place in it. If there is an explanation, it is the order.
  std::vector<size_t> longest;
  size_t stuck = 0;
  int64_t steps = 0;
};

// The calls and returns of operations in the order of time, from which operations are taken out and
// put back in reverse order. A call at the time of a return comes first, so both overlap.
class EntryList {
 public:
  explicit EntryList(const std::vector<Interval>& operations);

  // Entries are numbers; kEnd follows the last. Entry 2i is the call of operation i, 2i + 1 its
  // return.
  static constexpr size_t kEnd = std::numeric_limits<size_t>::max();
  size_t First() const { return Shown(next_[head_]); }
  size_t After(size_t entry) const { return Shown(next_[entry]); }
  void TakeOut(size_t operation);
  void PutBack(size_t operation);
  // The number of operations in the list that have returned.
  size_t open() const { return open_; }

 private:
  size_t Shown(size_t entry) const { return entry == head_ ? kEnd : entry; }
  void Unlink(size_t entry);
  void Relink(size_t entry);

  const std::vector<Interval>& operations_;
  const size_t head_;
  std::vector<size_t> next_;
  std::vector<size_t> previous_;
  size_t open_ = 0;
};

// A set of operations, by their indices.
using Bits = std::vector<uint64_t>;
inline void Flip(Bits& bits, size_t i) {
  bits[i / 64] ^= uint64_t{1} << (i % 64);
}
inline bool Has(const Bits& bits, size_t i) {
  return (bits[i / 64] >> (i % 64) & 1) != 0;
}

// Finds an order of `operations`. `step(state, i)` returns the state after operation i, or nothing
// if operation i cannot have happened in this state. States have == and <. It gives up after
// `steps_max` steps, since the search takes exponential time at worst.
template <typename State, typename Step>
Finding FindOrder(const std::vector<Interval>& operations, State state, const Step& step,
                  int64_t steps_max) {
  Finding finding;
  EntryList list(operations);
  Bits placed((operations.size() + 63) / 64, 0);
  std::set<std::pair<Bits, State>> tried;
  std::vector<std::pair<size_t, State>> order;  // operations with the states before them
  size_t entry = list.First();
  const auto is_possible = [&](size_t i) -> std::optional<State> {
    const Interval& operation = operations[i];
    if (operation.after >= 0 && !Has(placed, static_cast<size_t>(operation.after))) return {};
    if (++finding.steps > steps_max) return {};
    std::optional<State> next = step(state, i);
    // An operation of unknown outcome that changes nothing need not have happened.
    if (next.has_value() && operation.end == kNever && *next == state) return {};
    return next;
  };
  while (list.open() > 0) {
    const bool is_return = entry == EntryList::kEnd || entry % 2 == 1;
    if (!is_return) {
      const size_t i = entry / 2;
      entry = list.After(entry);
      std::optional<State> next = is_possible(i);
      if (!next.has_value()) continue;
      Bits more = placed;
      Flip(more, i);
      if (!tried.emplace(std::move(more), *next).second) continue;
      order.emplace_back(i, std::exchange(state, *std::move(next)));
      Flip(placed, i);
      list.TakeOut(i);
      entry = list.First();
      continue;
    }
    const bool is_longest = order.size() > finding.longest.size() || finding.longest.empty();
    if (is_longest && entry != EntryList::kEnd) {
      finding.stuck = entry / 2;
      finding.longest.clear();
      for (const auto& [i, before] : order) finding.longest.push_back(i);
    }
    if (finding.steps > steps_max || order.empty()) {
      finding.verdict =
          order.empty() && finding.steps <= steps_max ? Verdict::kUnexplained : Verdict::kGaveUp;
      return finding;
    }
    const size_t last = order.back().first;
    state = std::move(order.back().second);
    order.pop_back();
    Flip(placed, last);
    list.PutBack(last);
    entry = list.After(2 * last);
  }
  finding.longest.clear();
  for (const auto& [i, before] : order) finding.longest.push_back(i);
  return finding;
}

}  // namespace trainyard::linearizability
