// Keeps the calls and returns in a doubly linked list, so that an operation is taken out and put
// back in constant time.
#include "tests/linearizability/search.h"

#include <algorithm>
#include <numeric>

namespace trainyard::linearizability {

EntryList::EntryList(const std::vector<Interval>& operations)
    : operations_(operations), head_(2 * operations.size()) {
  std::vector<size_t> entries;
  for (size_t i = 0; i < operations.size(); ++i) {
    entries.push_back(2 * i);
    if (operations[i].end == kNever) continue;
    entries.push_back(2 * i + 1);
    ++open_;
  }
  const auto key = [&](size_t entry) {
    const Interval& operation = operations[entry / 2];
    return std::pair(entry % 2 == 0 ? operation.call : operation.end, entry % 2);
  };
  std::stable_sort(entries.begin(), entries.end(),
                   [&](size_t a, size_t b) { return key(a) < key(b); });
  next_.resize(head_ + 1, head_);
  previous_.resize(head_ + 1, head_);
  size_t before = head_;
  for (const size_t entry : entries) {
    next_[before] = entry;
    previous_[entry] = before;
    before = entry;
  }
  previous_[head_] = before;
}

void EntryList::Unlink(size_t entry) {
  next_[previous_[entry]] = next_[entry];
  previous_[next_[entry]] = previous_[entry];
}

void EntryList::Relink(size_t entry) {
  next_[previous_[entry]] = entry;
  previous_[next_[entry]] = entry;
}

void EntryList::TakeOut(size_t operation) {
  Unlink(2 * operation);
  if (operations_[operation].end == kNever) return;
  Unlink(2 * operation + 1);
  --open_;
}

void EntryList::PutBack(size_t operation) {
  if (operations_[operation].end != kNever) {
    Relink(2 * operation + 1);
    ++open_;
  }
  Relink(2 * operation);
}

}  // namespace trainyard::linearizability
