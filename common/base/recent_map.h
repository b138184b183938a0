// Keeps values that were asked for lately, within a number of bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "common/base/mutex.h"

namespace trainyard {

// There are two generations. When the young one is full it becomes the old one, and those of the
// former old one that were not asked for again are dropped. Values are copied, so they should be
// pointers, or small. The class is thread-safe.
template <typename Key, typename Value>
class RecentMap {
 public:
  // All values have at most about `bytes_max` bytes.
  explicit RecentMap(size_t bytes_max) : bytes_max_(bytes_max) {}

  // Returns the value of a key, or nothing.
  template <typename AnyKey>
  std::optional<Value> Find(const AnyKey& key) {
    const MutexLock lock(&mutex_);
    if (const auto young = young_.entries.find(key); young != young_.entries.end()) {
      return young->second.value;
    }
    const auto old = old_.entries.find(key);
    if (old == old_.entries.end()) return std::nullopt;
    young_.bytes += old->second.bytes;
    return young_.entries.insert(old_.entries.extract(old)).position->second.value;
  }

  // Keeps a value in place of the one that the key has. It takes `bytes` together with the key. One
  // of more than a hundredth of all bytes is not kept.
  void Put(Key key, Value value, size_t bytes) {
    if (bytes > bytes_max_ / kEntriesMin) return;
    // These take away what is dropped, which is destroyed after the lock is released.
    Generation dropped;
    Entry entry{std::move(value), bytes};
    const MutexLock lock(&mutex_);
    if (young_.bytes + bytes > bytes_max_ / 2) {
      dropped = std::exchange(old_, std::exchange(young_, {}));
    }
    Entry& kept = young_.entries[std::move(key)];
    young_.bytes += bytes - kept.bytes;
    std::swap(kept, entry);
  }

 private:
  struct Entry {
    Value value{};
    size_t bytes = 0;
  };
  struct Generation {
    absl::flat_hash_map<Key, Entry> entries;
    size_t bytes = 0;
  };
  static constexpr size_t kEntriesMin = 100;

  const size_t bytes_max_;
  Mutex mutex_;
  Generation young_ ABSL_GUARDED_BY(mutex_);
  Generation old_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard
