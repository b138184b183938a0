// Connects the one target of a program to libFuzzer.
#include <cstddef>
#include <cstdint>

#include "common/base/check.h"
#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using trainyard::fuzz::Targets;
  TY_CHECK(Targets().size() == 1);
  trainyard::fuzz::RunWithinLimits(Targets().front(), {reinterpret_cast<const char*>(data), size},
                                   trainyard::fuzz::Timing::kChecked);
  return 0;
}
