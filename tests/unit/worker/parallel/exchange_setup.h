// Defines the parts of a rank's exchange, and the ways to make one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tests/unit/worker/parallel/gang.h"
#include "worker/parallel/gradient_exchange.h"

namespace trainyard::parallel {

// Everything that a rank's exchange is made of.
struct ExchangeSetup {
  Place place;
  std::vector<Bucket> buckets;
  int64_t elements = 0;           // of the reduction and of each slot
  int64_t gradient_elements = 0;  // of the parameters
  int slots = 0;
  bool is_sharded = false;
  ExchangePlan plan;
  std::vector<int> term_slots;  // of this rank
  absl::Duration timeout;       // of the exchange, from the start
};

// A rank's exchange and the memory that it works on, zeroed at first. The exchange ends first.
struct RankExchange {
  std::shared_ptr<void> memory;
  absl::Span<float> reduction;
  std::vector<absl::Span<float>> slots;
  absl::Span<float> parameters;
  std::unique_ptr<GradientExchange> exchange;
};

// A way to make exchanges. Ranks are threads of the test, which call it at the same time.
struct ExchangeKind {
  std::string name;
  std::function<absl::StatusOr<RankExchange>(const ExchangeSetup&)> make;

  friend void PrintTo(const ExchangeKind& kind, std::ostream* out) { *out << kind.name; }
};

}  // namespace trainyard::parallel
