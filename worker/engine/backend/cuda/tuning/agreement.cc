// Bounds differences by the roundoff of sums, and finds the candidates that agree.
#include "worker/engine/backend/cuda/tuning/agreement.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace trainyard::engine::cuda {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Tensor cores add products with truncation, which loses up to a whole unit of the last place.
constexpr double kSumRoundoff = 0x1p-23;
// They add at least this many products to a sum at once, on all GPUs that have bf16.
constexpr double kProductsAtOnce = 16;
// The largest of 10^8 normal errors is 5.7 times their standard deviation, and that of a difference
// of two is sqrt(2) times as much.
constexpr double kSpread = 8;
// Sums over few terms are smaller, and so are their errors, as for the first positions of
// attention. Elements are therefore compared with those around them, as well as with all.
constexpr size_t kNeighbours = 64;

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

std::vector<float> Decode(absl::Span<const std::byte> bytes, Type type) {
  std::vector<float> values(bytes.size() / static_cast<size_t>(SizeOf(type)));
  const std::byte* from = bytes.data();
  for (float& value : values) {
    switch (type) {
      case Type::kF32:
        value = Load<float>(from);
        break;
      case Type::kF16:
        value = __half2float(Load<__half>(from));
        break;
      case Type::kBf16:
        value = __bfloat162float(Load<__nv_bfloat16>(from));
        break;
    }
    from += SizeOf(type);
  }
  return values;
}

// Returns the root of the mean square of the finite values, or 0 if there are none.
double Size(absl::Span<const float> values) {
  double squares = 0;
  int64_t count = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    squares += static_cast<double>(value) * static_cast<double>(value);
    ++count;
  }
  return count == 0 ? 0 : std::sqrt(squares / static_cast<double>(count));
}

double DifferenceOf(float a, float b, double roundoff, double sum_error) {
  if (!std::isfinite(a) || !std::isfinite(b)) {
    return std::isfinite(a) == std::isfinite(b) ? 0 : kInfinity;
  }
  const double difference = std::abs(static_cast<double>(a) - static_cast<double>(b));
  if (difference == 0) return 0;
  const double larger = static_cast<double>(std::max(std::abs(a), std::abs(b)));
  return difference / (2 * roundoff * larger + sum_error);
}

// The bytes that a candidate has written, by output.
using Written = std::vector<std::vector<std::byte>>;

double DifferenceOf(const Written& a, const Written& b, const std::vector<Output>& outputs) {
  // A candidate that does not run has written nothing.
  if (a.empty() || b.empty()) return kInfinity;
  double largest = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    largest = std::max(largest, Difference(a[i], b[i], outputs[i].exactness));
  }
  return largest;
}

absl::StatusOr<Written> Run(Bench& bench, const std::vector<Output>& outputs,
                            const std::function<absl::Status()>& run) {
  for (const Output& output : outputs) {
    TY_RETURN_IF_ERROR(bench.Fill(output.data, output.bytes));
  }
  TY_RETURN_IF_ERROR(run());
  Written written;
  for (const Output& output : outputs) {
    TY_ASSIGN_OR_RETURN(std::vector<std::byte> sample, bench.Sample(output.data, output.bytes));
    written.push_back(std::move(sample));
  }
  return written;
}

// Returns nothing written if it does not run, and an error after which the device does nothing
// more.
absl::StatusOr<Written> Try(Bench& bench, const std::vector<Output>& outputs,
                            const std::function<absl::Status()>& run) {
  absl::StatusOr<Written> written = Run(bench, outputs, run);
  if (written.ok()) return written;
  TY_RETURN_IF_ERROR(bench.CheckDevice(written.status()));
  return Written();
}

Agreement AgreementWith(const Written& reference, const std::vector<Written>& written,
                        const std::vector<Output>& outputs) {
  Agreement agreement;
  for (const Written& other : written) {
    agreement.differences.push_back(DifferenceOf(other, reference, outputs));
    agreement.runs.push_back(!other.empty());
  }
  return agreement;
}

// Takes the candidate with which most agree for the reference.
Agreement AgreementAmong(const std::vector<Written>& written, const std::vector<Output>& outputs) {
  const auto with = [&](size_t reference) {
    Agreement agreement = AgreementWith(written[reference], written, outputs);
    agreement.reference = reference;
    return agreement;
  };
  const auto agreeing = [](const Agreement& agreement) {
    return std::count_if(agreement.differences.begin(), agreement.differences.end(),
                         [](double difference) { return difference <= 1; });
  };
  Agreement best = with(0);
  // Mostly all agree with the first, and the others need not be compared with each other.
  for (size_t i = 1; i < written.size() && agreeing(best) < std::ssize(written); ++i) {
    Agreement other = with(i);
    if (agreeing(other) > agreeing(best)) best = std::move(other);
  }
  return best;
}

}  // namespace

double UnitRoundoff(Type type) {
  switch (type) {
    case Type::kF16:
      return 0x1p-11;
    case Type::kBf16:
      return 0x1p-8;
    case Type::kF32:
      break;
  }
  return 0x1p-24;
}

double Difference(absl::Span<const std::byte> a, absl::Span<const std::byte> b,
                  const Exactness& exactness) {
  TY_CHECK(a.size() == b.size());
  const std::vector<float> mine = Decode(a, exactness.type);
  const std::vector<float> theirs = Decode(b, exactness.type);
  const double roundoff = UnitRoundoff(exactness.type);
  const auto length = static_cast<double>(exactness.length);
  const double error = kSpread * (exactness.factor_roundoff + kSumRoundoff * std::sqrt(length)) +
                       kSumRoundoff * length / kProductsAtOnce;
  const double size_of_all = Size(theirs);
  double largest = 0;
  for (size_t begin = 0; begin < theirs.size(); begin += kNeighbours) {
    const size_t end = std::min(begin + kNeighbours, theirs.size());
    const double size =
        std::max(size_of_all, Size(absl::MakeConstSpan(theirs).subspan(begin, end - begin)));
    for (size_t i = begin; i < end; ++i) {
      largest = std::max(largest, DifferenceOf(mine[i], theirs[i], roundoff, error * size));
    }
  }
  return largest;
}

bool Agreement::is_disputed() const {
  bool runs_any = false;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (Agrees(i)) return false;
    runs_any = runs_any || runs[i];
  }
  return runs_any;
}

double Agreement::largest() const {
  double largest = 0;
  for (const double difference : differences) {
    if (difference <= 1) largest = std::max(largest, difference);
  }
  return largest;
}

ComparedWith Agreement::compared_with() const {
  if (!reference.has_value()) return ComparedWith::kOwnKernel;
  return std::count(runs.begin(), runs.end(), true) > 1 ? ComparedWith::kCandidates
                                                        : ComparedWith::kNothing;
}

absl::StatusOr<Agreement> CompareCandidates(Bench& bench, const std::vector<Output>& outputs,
                                            size_t count,
                                            const std::function<absl::Status(size_t)>& run,
                                            const std::function<absl::Status()>& arbiter) {
  TY_CHECK(count > 0);
  Written right;
  if (arbiter != nullptr) {
    TY_ASSIGN_OR_RETURN(right, Try(bench, outputs, arbiter));
  }
  std::vector<Written> written(count);
  for (size_t i = 0; i < count; ++i) {
    TY_ASSIGN_OR_RETURN(written[i], Try(bench, outputs, [&] { return run(i); }));
  }
  return right.empty() ? AgreementAmong(written, outputs) : AgreementWith(right, written, outputs);
}

}  // namespace trainyard::engine::cuda
