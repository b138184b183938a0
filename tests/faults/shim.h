// Makes single system calls of a real process fail, kills the process at one of them, or moves its
// wall clock, by a library that is preloaded into it.
//
//   Shim shim;
//   Yard::Options options;
//   options.server_environment = shim.Environment();
//   Yard yard(options);
//   yard.StartServer();
//   shim.Arm({.calls = kShimSync, .path = "trainyard.db-wal", .action = EIO});
//   ...
//   EXPECT_EQ(shim.Struck(), 1);
//
// The library does not reach programs that are linked statically, as the supervisor is.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "tests/faults/shim_control.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::testing {

class Shim {
 public:
  static constexpr int64_t kAlways = std::numeric_limits<int64_t>::max();

  struct Fault {
    uint32_t calls = 0;
    // A part of the file's path.
    std::string path;
    // An errno, kShimKill or kShimKillHalf.
    int32_t action = kShimKill;
    // The matching calls that pass before.
    int64_t passing = 0;
    // The calls that are struck from then on.
    int64_t times = 1;
  };

  Shim();
  ~Shim();
  Shim(const Shim&) = delete;
  Shim& operator=(const Shim&) = delete;

  // Returns true if the library can be loaded. Sanitizers must be loaded before all others.
  static bool IsPossible();
  // Returns the variables that load the library into a process and into those that it starts.
  std::map<std::string, std::string> Environment() const;

  // Replaces what was armed before.
  void Arm(const Fault& fault);
  void Disarm() { control_->calls = 0; }
  // Returns the number of calls that were struck, over all faults.
  int64_t Struck() const { return control_->struck; }
  // Returns the number of calls that matched since Arm.
  int64_t Seen() const { return control_->seen; }
  // Returns the number of syncs that succeeded after one of the same file had failed, without a
  // change of the file in between.
  int64_t Trusted() const { return control_->trusted; }
  void SetClockOffset(absl::Duration offset) {
    control_->clock_offset_ns = absl::ToInt64Nanoseconds(offset);
  }

 private:
  TempDir dir_;
  ShimControl* control_ = nullptr;
};

#define SKIP_WITHOUT_SHIM()                                                  \
  if (!::trainyard::testing::Shim::IsPossible()) {                           \
    GTEST_SKIP() << "sanitizers do not let a library be loaded before them"; \
  }

}  // namespace trainyard::testing
