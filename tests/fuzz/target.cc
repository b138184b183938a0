// Runs targets within their limits.
#include "tests/fuzz/target.h"

#include <ctime>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/fuzz/memory_meter.h"

namespace trainyard::fuzz {
namespace {

constexpr int64_t kExpansionMax = 16;
constexpr double kSecondsMax = 1;

std::vector<Target>& MutableTargets() {
  static auto* targets = new std::vector<Target>;
  return *targets;
}

// The time of this process on processors, so that a busy machine makes no input look slow.
double ProcessorSeconds() {
  timespec time{};
  TY_CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) == 0);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Returns what the input took too much of, or an empty text.
std::string Excess(const Target& target, absl::string_view input, Timing timing) {
  const int64_t limit = kExpansionMax * static_cast<int64_t>(input.size()) + target.fixed_bytes;
  const double begin = ProcessorSeconds();
  MemoryMeter::Restart();
  target.run(input);
  const int64_t peak = MemoryMeter::Peak();
  const double seconds = ProcessorSeconds() - begin;
  if (peak > limit) {
    return absl::StrCat("an input of ", input.size(), " bytes took ", peak,
                        " bytes of memory; at most ", limit, " are allowed");
  }
  if (timing == Timing::kChecked && seconds > kSecondsMax) {
    return absl::StrCat("an input of ", input.size(), " bytes took ", seconds,
                        " s of processor time; at most ", kSecondsMax, " s is allowed");
  }
  return "";
}

}  // namespace

const std::vector<Target>& Targets() {
  return MutableTargets();
}

Registration::Registration(Target target) {
  MutableTargets().push_back(std::move(target));
}

void RunWithinLimits(const Target& target, absl::string_view input, Timing timing) {
  if (Excess(target, input, timing).empty()) return;
  const std::string excess = Excess(target, input, timing);
  if (!excess.empty()) CheckFailed(__FILE__, __LINE__, absl::StrCat(target.name, ": ", excess));
}

}  // namespace trainyard::fuzz
