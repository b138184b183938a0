// The cases that every gradient exchange must pass. A test that links them instantiates the suites
// for its exchanges.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/parallel/gang.h"
#include "worker/parallel/gradient_exchange.h"

namespace trainyard::parallel {

// Everything of which a rank's exchange is made.
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

// The parameters are kind, world size, and whether it is sharded.
class ExchangeTest : public ::testing::TestWithParam<std::tuple<ExchangeKind, int, bool>> {};
// Cases where ranks disagree, or one does not do its part.
class ExchangeFaultTest : public ::testing::TestWithParam<ExchangeKind> {};

// These name the instances.
inline std::string NameOfExchange(
    const ::testing::TestParamInfo<std::tuple<ExchangeKind, int, bool>>& of) {
  return std::get<0>(of.param).name + "_" + std::to_string(std::get<1>(of.param)) +
         (std::get<2>(of.param) ? "_sharded" : "");
}
inline std::string NameOfExchangeKind(const ::testing::TestParamInfo<ExchangeKind>& of) {
  return of.param.name;
}

}  // namespace trainyard::parallel
