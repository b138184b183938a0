// Runs the ranks of the exchange cases as threads of the test. It has their data, the sums that
// they must get, and the way they do a step.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/parallel/exchange_setup.h"
#include "worker/parallel/gradient_exchange.h"

namespace trainyard::parallel::exchange_rank {

// An arena with odd buckets: one that no number of ranks divides, one smaller than the number of
// ranks, one larger than what is copied at a time, and two behind the gradients.
inline const std::vector<Bucket> kBuckets = {{0, 1001},      {1001, 1003},   {1003, 90007},
                                             {90007, 90120}, {90120, 90131}, {90131, 90132}};
inline constexpr int64_t kElements = 90132;
inline constexpr int64_t kGradients = 90120;
inline constexpr float kRate = 0.125F;

// The terms of all ranks, and where they lie.
struct Terms {
  ExchangePlan plan;
  std::vector<std::vector<int>> slots;  // by rank
};

// Returns one term for each rank.
inline Terms OneTermEach(int ranks) {
  Terms terms;
  terms.plan = {std::vector<int>(static_cast<size_t>(ranks), 1), PlanRankSum(ranks)};
  terms.slots.assign(static_cast<size_t>(ranks), {-1});
  return terms;
}

inline Terms TermsOfHosting(int replicas, const std::vector<ReplicaRange>& hosting) {
  Terms terms;
  terms.plan.sum = PlanTreeSum(replicas, hosting);
  for (const ReplicaRange hosted : hosting) {
    terms.slots.push_back(PlanLocalSums(replicas, hosted).term_slots);
    terms.plan.terms.push_back(static_cast<int>(terms.slots.back().size()));
  }
  return terms;
}

// Returns the terms of seven replicas, of which the ranks host different numbers. With many ranks
// the last one hosts none.
inline Terms UnevenTerms(int ranks) {
  const std::vector<std::vector<ReplicaRange>> hostings = {
      {{0, 7}}, {{0, 3}, {3, 7}}, {{0, 1}, {1, 6}, {6, 7}}, {{0, 3}, {3, 4}, {4, 7}, {7, 7}}};
  return TermsOfHosting(7, hostings[static_cast<size_t>(ranks - 1)]);
}

// The number of slots that any of the plans here needs.
inline constexpr int kSlots = 6;

// Returns the value of a term. It uses all digits of a float, and sizes differ so much that every
// other order of summation rounds differently.
inline float TermValue(int64_t step, int term, int64_t element) {
  auto mixed =
      static_cast<uint64_t>(element * 1000003 + int64_t{term} * 7919 + step) * 0x9E3779B97F4A7C15U;
  mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9U;
  const auto digits = static_cast<float>(static_cast<int32_t>(mixed >> 40) - (1 << 23));
  return std::ldexp(digits, -static_cast<int>((mixed >> 33) % 13));
}

// The sums of the plan, evaluated in one place.
inline std::vector<float> ExpectedSums(const ExchangePlan& plan, int64_t step) {
  std::vector<float> sums(static_cast<size_t>(kElements));
  std::vector<float> stack;
  for (int64_t i = 0; i < kElements; ++i) {
    stack.clear();
    int next = 0;
    for (const SumOp op : plan.sum.ops) {
      if (op == SumOp::kPush) {
        stack.push_back(TermValue(step, next++, i));
        continue;
      }
      const float right = stack.back();
      stack.pop_back();
      stack.back() = stack.back() + right;
    }
    sums[static_cast<size_t>(i)] = stack.back();
  }
  return sums;
}

inline bool SameBits(absl::Span<const float> a, absl::Span<const float> b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
         });
}

inline absl::Status Unless(bool good, absl::string_view what) {
  return good ? absl::OkStatus() : absl::InternalError(what);
}

// One rank of a test, which makes its exchange and does steps with it.
class Rank {
 public:
  Rank(RankExchange made, int rank, Terms terms)
      : made_(std::move(made)), rank_(rank), terms_(std::move(terms)) {}

  GradientExchange& exchange() { return *made_.exchange; }
  RankExchange& made() { return made_; }
  int rank() const { return rank_; }

  void Leave() { made_.exchange.reset(); }

  absl::Status SetTerms(Terms terms) {
    terms_ = std::move(terms);
    return exchange().SetPlan(terms_.plan, terms_.slots[static_cast<size_t>(rank_)]);
  }

  // Writes what backward leaves in [begin, end).
  void Write(int64_t step, int64_t begin, int64_t end) {
    const auto first =
        std::accumulate(terms_.plan.terms.begin(), terms_.plan.terms.begin() + rank_, 0);
    const std::vector<int>& slots = terms_.slots[static_cast<size_t>(rank_)];
    for (size_t term = 0; term < slots.size(); ++term) {
      const absl::Span<float> memory =
          slots[term] < 0 ? made_.reduction : made_.slots[static_cast<size_t>(slots[term])];
      for (int64_t i = begin; i < end; ++i) {
        memory[static_cast<size_t>(i)] = TermValue(step, first + static_cast<int>(term), i);
      }
    }
  }

  absl::Status Begin(int64_t step, absl::Span<const double> ballot = {}) {
    ballots_.assign(ballot.size() * terms_.plan.terms.size(), 0);
    return exchange().Begin(step, ballot);
  }

  // Makes gradients final in pieces that do not coincide with buckets.
  absl::Status Backward(int64_t step, int64_t piece = 777) {
    for (int64_t begin = 0; begin < kElements; begin += piece) {
      const int64_t end = std::min(kElements, begin + piece);
      Write(step, begin, end);
      TY_RETURN_IF_ERROR(exchange().Ready(end));
    }
    return absl::OkStatus();
  }

  // Buckets land, are checked, update the parameters, and leave.
  absl::Status LandAll(const std::vector<float>& expected) {
    const absl::Span<const Bucket> buckets = exchange().buckets();
    TY_RETURN_IF_ERROR(Unless(buckets.size() == kBuckets.size(), "there are other buckets"));
    for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
      TY_RETURN_IF_ERROR(exchange().Land(bucket));
      const Bucket own = exchange().OwnBlock(bucket);
      const auto sums = absl::MakeSpan(expected).subspan(static_cast<size_t>(own.begin),
                                                         static_cast<size_t>(own.size()));
      const absl::Span<const float> landed =
          made_.reduction.subspan(static_cast<size_t>(own.begin), static_cast<size_t>(own.size()));
      TY_RETURN_IF_ERROR(
          Unless(SameBits(landed, sums), absl::StrCat("bucket ", bucket, " has other sums")));
      if (buckets[bucket].begin >= kGradients) continue;
      for (int64_t i = own.begin; i < own.end; ++i) {
        const auto at = static_cast<size_t>(i);
        made_.parameters[at] -= kRate * made_.reduction[at];
      }
      TY_RETURN_IF_ERROR(exchange().Share(bucket));
    }
    return absl::OkStatus();
  }

  absl::Status Step(int64_t step, absl::Span<const double> ballot = {}) {
    const std::vector<float> expected = ExpectedSums(terms_.plan, step);
    TY_RETURN_IF_ERROR(Begin(step, ballot));
    TY_RETURN_IF_ERROR(Backward(step));
    TY_RETURN_IF_ERROR(LandAll(expected));
    TY_RETURN_IF_ERROR(exchange().End());
    TY_RETURN_IF_ERROR(exchange().Finish(absl::MakeSpan(ballots_)));
    for (size_t i = 0; i < wanted_.size(); ++i) wanted_[i] -= kRate * expected[i];
    return Unless(SameBits(made_.parameters, wanted_), "there are other parameters");
  }

  const std::vector<double>& ballots() const { return ballots_; }

 private:
  RankExchange made_;
  const int rank_;
  Terms terms_;
  std::vector<double> ballots_;
  std::vector<float> wanted_ = std::vector<float>(static_cast<size_t>(kGradients));
};

struct Gang {
  ExchangeKind kind;
  int ranks = 1;
  bool is_sharded = false;
  absl::Duration timeout = absl::Seconds(20);
  // Changes the setup of one rank.
  std::function<void(ExchangeSetup&)> change = nullptr;
};

// Runs `work` on a thread for each rank; returns the statuses by rank.
inline std::vector<absl::Status> RunRanks(const Gang& gang, const Terms& terms,
                                          const std::function<absl::Status(Rank&)>& work) {
  const testing::TempDir folder;
  const auto group = MakeLocalGroup(gang.ranks);
  std::vector<absl::Status> statuses(static_cast<size_t>(gang.ranks));
  const auto run_rank = [&](int rank) -> absl::Status {
    ExchangeSetup setup{.place = {rank, gang.ranks, run_dir::RunDir(folder.path()), group},
                        .buckets = kBuckets,
                        .elements = kElements,
                        .gradient_elements = kGradients,
                        .slots = kSlots,
                        .is_sharded = gang.is_sharded,
                        .plan = terms.plan,
                        .term_slots = terms.slots[static_cast<size_t>(rank)],
                        .timeout = gang.timeout};
    if (gang.change != nullptr) gang.change(setup);
    TY_ASSIGN_OR_RETURN(RankExchange made, gang.kind.make(setup));
    Rank one(std::move(made), rank, terms);
    return work(one);
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(gang.ranks));
  for (int rank = 0; rank < gang.ranks; ++rank) {
    threads.emplace_back([&, rank] { statuses[static_cast<size_t>(rank)] = run_rank(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

}  // namespace trainyard::parallel::exchange_rank
