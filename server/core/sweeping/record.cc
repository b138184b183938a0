// Computes what follows from a definition alone.
#include "server/core/sweeping/record.h"

#include <cmath>
#include <limits>
#include <tuple>

namespace trainyard::core::sweeping {

int32_t RungCount(const Definition& definition) {
  const bool has_rungs = definition.search == Search::kAsha || definition.search == Search::kPbt;
  return has_rungs ? definition.rungs : 1;
}

double RungShare(const Definition& definition, int32_t rung) {
  const int32_t rungs = RungCount(definition);
  if (definition.search == Search::kPbt) {
    return static_cast<double>(rung + 1) / static_cast<double>(rungs);
  }
  return std::pow(definition.factor, rung + 1 - rungs);
}

int32_t DefaultRungs(int32_t trials, int32_t factor) {
  int32_t rungs = 1;
  for (int64_t needed = factor; needed <= trials; needed *= factor) ++rungs;
  return rungs;
}

double ScoreOf(const Definition& definition, double value) {
  if (std::isnan(value)) return -std::numeric_limits<double>::infinity();
  return definition.maximize ? value : -value;
}

bool operator==(const Entry& a, const Entry& b) {
  const auto rest = [](const Entry& entry) {
    return std::tie(entry.kind, entry.trial, entry.rung, entry.step, entry.can_pause, entry.donor,
                    entry.end, entry.text, entry.time_us);
  };
  const bool are_equal_values = a.value == b.value || (std::isnan(a.value) && std::isnan(b.value));
  return are_equal_values && rest(a) == rest(b);
}

}  // namespace trainyard::core::sweeping
