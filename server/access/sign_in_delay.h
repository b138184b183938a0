// Slows down those who try tokens that are none. Whoever guesses 256 bits does not succeed at any
// speed; the delay keeps the guesses from costing others time and from filling the records.
#pragma once

#include <cstddef>
#include <list>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace trainyard::access {

// Counts failures by address. A valid token is served whatever its address, so that one machine
// behind a common address cannot lock out the others. The class is thread-safe.
class SignInDelay {
 public:
  // So many failures in a row cost nothing, since people mistype.
  static constexpr int kFreeFailures = 5;
  static constexpr absl::Duration kFirstDelay = absl::Seconds(1);
  static constexpr absl::Duration kDelayMax = absl::Minutes(1);
  // An address that has not failed for so long is forgotten.
  static constexpr absl::Duration kForgetAfter = absl::Minutes(10);
  // The addresses that are remembered. The one that failed longest ago makes room for a new one.
  static constexpr size_t kAddressesMax = 10'000;

  // Takes a failed sign-in at the uptime `now`. Returns zero if the failure counts and is answered
  // as such. Otherwise the address has to wait for so long before its next try is looked at.
  absl::Duration Failed(absl::string_view address, absl::Duration now);

  size_t size() const;

 private:
  struct Address {
    std::string name;
    int failures = 0;
    absl::Duration last;   // when it failed and that counted
    absl::Duration until;  // the end of its delay
  };
  using Addresses = std::list<Address>;

  Addresses::iterator Remember(absl::string_view name, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  Addresses addresses_ ABSL_GUARDED_BY(mutex_);  // the one that failed last is the first
  absl::flat_hash_map<std::string, Addresses::iterator> by_name_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::access
