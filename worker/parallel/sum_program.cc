// Runs a plan of sums over pieces of arrays.
#include "worker/parallel/sum_program.h"

#include <algorithm>

#include "common/base/check.h"
#include "worker/parallel/collective.h"

namespace trainyard::parallel {
namespace {

// 8 KiB, so that a few of them fit into the smallest first-level caches.
constexpr size_t kPiece = 2048;

// Adds two arrays. The target overlaps neither operand.
void Add(const float* __restrict left, const float* __restrict right, size_t count,
         float* __restrict target) {
  for (size_t i = 0; i < count; ++i) target[i] = left[i] + right[i];
}

void AddPieces(const float* left, const float* right, size_t count, float* target) {
  if (left == target) {
    AddTo(target, right, count);
  } else if (right == target) {
    // The order of the operands does not matter, because a + b rounds like b + a.
    AddTo(target, left, count);
  } else {
    Add(left, right, count, target);
  }
}

}  // namespace

SumProgram::SumProgram(const SumPlan& plan)
    : ops_(plan.ops),
      terms_(static_cast<size_t>(std::count(plan.ops.begin(), plan.ops.end(), SumOp::kPush))),
      stack_(static_cast<size_t>(plan.depth)),
      scratch_(static_cast<size_t>(plan.depth) * kPiece) {
  TY_CHECK(terms_ >= 1 && ops_.size() == 2 * terms_ - 1);
}

void SumProgram::Run(absl::Span<const float* const> terms, size_t count,
                     absl::Span<float* const> targets) {
  TY_CHECK(terms.size() == terms_ && !targets.empty());
  float* const target = targets[0];
  for (size_t begin = 0; begin < count; begin += kPiece) {
    const size_t size = std::min(kPiece, count - begin);
    size_t next = 0, top = 0;
    for (size_t op = 0; op < ops_.size(); ++op) {
      if (ops_[op] == SumOp::kPush) {
        stack_[top++] = terms[next++] + begin;
        continue;
      }
      --top;
      // The target may be a term that is still to be read, so only the last sum goes there.
      const bool is_last = op + 1 == ops_.size();
      float* sum = is_last ? target + begin : scratch_.data() + (top - 1) * kPiece;
      AddPieces(stack_[top - 1], stack_[top], size, sum);
      stack_[top - 1] = sum;
    }
    if (stack_[0] != target + begin) std::copy_n(stack_[0], size, target + begin);
    for (float* const other : targets.subspan(1)) {
      std::copy_n(target + begin, size, other + begin);
    }
  }
}

}  // namespace trainyard::parallel
