#include "worker/parallel/sum_terms.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace trainyard::parallel {
namespace {

// 8 KiB: a stack of two and the terms of two fit the first-level cache.
constexpr int64_t kChunk = 2048;

void Add(const float* __restrict a, const float* __restrict b, float* __restrict sum,
         int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

void AddInto(float* __restrict sum, const float* __restrict b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += b[i];
}

}  // namespace

TermSummer::TermSummer(SumPlan plan)
    : plan_(std::move(plan)), chunks_(static_cast<size_t>(plan_.depth * kChunk)) {
  stack_.reserve(static_cast<size_t>(plan_.depth));
}

void TermSummer::Sum(absl::Span<const float* const> terms, int64_t count,
                     absl::Span<float* const> targets) {
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t part = std::min(kChunk, count - begin);
    const float* const sum = SumChunk(terms, begin, part);
    for (float* const target : targets) {
      if (target + begin == sum) continue;
      std::memcpy(target + begin, sum, static_cast<size_t>(part) * sizeof(float));
    }
  }
}

const float* TermSummer::SumChunk(absl::Span<const float* const> terms, int64_t begin,
                                  int64_t count) {
  stack_.clear();
  size_t next = 0;
  for (const SumOp op : plan_.ops) {
    if (op == SumOp::kPush) {
      TY_CHECK(next < terms.size());
      stack_.push_back(terms[next++] + begin);
      continue;
    }
    const float* const right = stack_.back();
    stack_.pop_back();
    const float* const left = stack_.back();
    // The only chunk that may be the left operand; the right one never is.
    float* const of_left = chunks_.data() + (stack_.size() - 1) * kChunk;
    if (left == of_left) {
      AddInto(of_left, right, count);
    } else {
      Add(left, right, of_left, count);
    }
    stack_.back() = of_left;
  }
  TY_CHECK(next == terms.size() && stack_.size() == 1);
  return stack_.back();
}

}  // namespace trainyard::parallel
