// Compares what candidates compute, since an engine of a library may be wrong for some shape, and a
// wrong one may be the fastest. They are compared with an arbiter, which is a kernel that does not
// come from the library, or with each other if there is none. Candidates alone find out nothing if
// they are all wrong in the same way, or if there is only one.
//
// Two right candidates differ by rounding alone. Each element of an output is a sum of products.
// If the factors are exact, the products are added in f32, in an order that differs from candidate
// to candidate. The error of a sum of n random terms grows as its roundoff times sqrt(n), relative
// to the size of such sums (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2).
// Tensor cores truncate instead of rounding, and these errors have one sign, so in long sums they
// grow as the number of additions. Then each candidate rounds its sum once to the type of the
// output. The noise that measurements run on has random signs, so these estimates hold for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/engine/backend/cuda/device/types.h"
#include "worker/engine/backend/cuda/tuning/bench.h"
#include "worker/engine/backend/cuda/tuning/plan_record.h"

namespace trainyard::engine::cuda {

// Returns the largest relative error of rounding a number to the type.
double UnitRoundoff(Type type);
// This is the roundoff of the factors of products in tf32, which has as many digits as f16.
inline constexpr double kTf32Roundoff = 0x1p-11;

// Says how exact the elements of an output are.
struct Exactness {
  Type type = Type::kF32;  // in which they are stored
  // The roundoff of factors that a candidate may round before it multiplies them; 0 if all use them
  // as they are.
  double factor_roundoff = 0;
  int64_t length = 1;  // the number of products in a sum
};

// Returns the largest difference of two arrays of the type, as a multiple of the bound that
// rounding explains: up to 1, both are right, or both are wrong in the same way. It is infinite if
// an element is finite in one of them only. Elements that are finite in neither count as equal.
double Difference(absl::Span<const std::byte> a, absl::Span<const std::byte> b,
                  const Exactness& exactness);

// Memory of the device that candidates write.
struct Output {
  void* data = nullptr;
  int64_t bytes = 0;
  Exactness exactness = {};
};

struct Agreement {
  // The candidate with which most agree, or the first of several such. There is none if the arbiter
  // is the reference.
  std::optional<size_t> reference;
  // The difference of each candidate from the reference; infinite if either does not run.
  std::vector<double> differences;
  std::vector<bool> runs;  // by candidate

  bool Agrees(size_t candidate) const { return differences[candidate] <= 1; }
  // Returns true if the candidate computes something else.
  bool Differs(size_t candidate) const { return runs[candidate] && !Agrees(candidate); }
  // Returns true if candidates differ from the arbiter, and none agrees with it.
  bool is_disputed() const;
  // Returns the largest difference of a candidate that agrees.
  double largest() const;
  ComparedWith compared_with() const;
};

// Runs each of `count` candidates once on the same noise, and compares samples of what they write.
// Elements that belong to no output, such as gaps between pixels, must stay as they were. `run`
// enqueues a candidate on the bench's stream. So does `arbiter`, which runs before the candidates
// and may prepare what they read; if it is empty or fails, the candidates are compared with each
// other. Returns an error after which the device does nothing more.
absl::StatusOr<Agreement> CompareCandidates(Bench& bench, const std::vector<Output>& outputs,
                                            size_t count,
                                            const std::function<absl::Status(size_t)>& run,
                                            const std::function<absl::Status()>& arbiter = nullptr);

}  // namespace trainyard::engine::cuda
