// Implements the update of the CPU: block by block, each block on one thread.
#include "worker/engine/backend/cpu/updater.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "worker/engine/backend/cpu/parallel.h"

namespace trainyard::engine::cpu {
namespace {

// Parameter, gradient, two slots and an average of a block take 80 KiB, which fit into the
// second-level cache of any processor.
constexpr int64_t kBlockElements = 4096;

using Rule = OptimizerSpec::Rule;

constexpr UpdateKernel* UpdateKernels::*kRules[] = {
#define TY_RULE(kind, name, keeps, is_layerwise) &UpdateKernels::name,
#include "worker/engine/optim/rules.def"
#undef TY_RULE
};

}  // namespace

Updater::Updater(const OptimizerSpec& spec, const StateTable& table, int64_t gradient_elements,
                 int threads, Backing backing)
    : spec_(spec),
      segments_(table.segments),
      gradient_elements_(gradient_elements),
      threads_(threads),
      kernels_(BestUpdateKernels()),
      state_(spec, table, gradient_elements, backing) {
  for (size_t i = 0; i < segments_.size(); ++i) {
    first_block_.push_back(blocks_.size());
    for (int64_t begin = 0; begin < segments_[i].count; begin += kBlockElements) {
      blocks_.push_back(
          {segments_[i].offset + begin, std::min(kBlockElements, segments_[i].count - begin), i});
    }
  }
  first_block_.push_back(blocks_.size());
  if (IsLayerwise(spec) || spec.clip_norm > 0) {
    sums_ = AlignedBuffer(
        static_cast<int64_t>(blocks_.size() * sizeof(Sums) + segments_.size() * sizeof(double)),
        backing);
    ratios_ = reinterpret_cast<double*>(sums_.as<Sums>() + blocks_.size());
  }
}

template <class Body>
void Updater::ForBlocks(const Body& body) {
  Sums* sums = sums_.as<Sums>();
  ParallelFor(threads_, static_cast<int64_t>(blocks_.size()), [&](int64_t index) {
    const auto i = static_cast<size_t>(index);
    body(blocks_[i], sums + i);
  });
}

void Updater::SumSquares(const float* parameters, const float* gradients) {
  const bool of_parameters = spec_.rule == Rule::kLars;
  ForBlocks([&](const Block& block, Sums* sums) {
    sums->other = kernels_.square_sum(gradients + block.offset, block.count);
    if (of_parameters) {
      sums->parameter = kernels_.square_sum(parameters + block.offset, block.count);
    }
  });
}

double Updater::GradientNorm() const {
  double squares = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    squares += sums_.as<Sums>()[i].other;
  }
  return std::sqrt(squares);
}

double Updater::SegmentRatio(size_t segment, const UpdateRates& rates) const {
  if (IsExcluded(segment)) {
    return 1;
  }
  Sums total;
  for (size_t i = first_block_[segment]; i < first_block_[segment + 1]; ++i) {
    total.parameter += sums_.as<Sums>()[i].parameter;
    total.other += sums_.as<Sums>()[i].other;
  }
  const double parameter_norm = std::sqrt(total.parameter);
  const double other_norm = std::sqrt(total.other);
  return spec_.rule == Rule::kLars
             ? LarsRatio(spec_, parameter_norm, rates.gradient_scale * other_norm)
             : LambRatio(parameter_norm, other_norm);
}

UpdateBlock Updater::At(const Block& block, float* parameters, float* gradients) const {
  return {block.count, parameters + block.offset, gradients + block.offset,
          state_.slot(0, block.offset), state_.slot(1, block.offset)};
}

UpdateRule Updater::RuleOf(const Block& block) const {
  const auto to_float = [](double value) { return static_cast<float>(value); };
  return {.lr = to_float(rates_.lr),
          .momentum = to_float(spec_.momentum),
          .weight_decay = IsExcluded(block.segment) ? 0 : to_float(spec_.weight_decay),
          .beta1 = to_float(spec_.beta1),
          .rest1 = to_float(1 - spec_.beta1),
          .beta2 = to_float(spec_.beta2),
          .rest2 = to_float(1 - spec_.beta2),
          .eps = to_float(spec_.eps),
          .first_correction = to_float(rates_.first_correction),
          .second_correction = to_float(rates_.second_correction),
          .gradient_scale = to_float(rates_.gradient_scale),
          .nesterov = spec_.nesterov};
}

void Updater::ApplyMoments(float* parameters, float* gradients) {
  ForBlocks([&](const Block& block, Sums* sums) {
    if (!kernels_.lamb_moments(RuleOf(block), At(block, parameters, gradients), &sums->parameter,
                               &sums->other)) {
      is_finite_ = false;
    }
  });
}

void Updater::Begin(double lr, float* parameters, float* gradients) {
  is_finite_ = true;
  applied_.clear();
  const int64_t t = state_.CountStep();
  double gradient_norm = 0;
  if (spec_.rule == Rule::kLars || spec_.clip_norm > 0) {
    SumSquares(parameters, gradients);
    gradient_norm = GradientNorm();
  }
  rates_ = RatesOfUpdate(spec_, lr, t, gradient_norm);
  if (spec_.rule == Rule::kLamb) {
    ApplyMoments(parameters, gradients);
  }
  if (IsLayerwise(spec_)) {
    for (size_t i = 0; i < segments_.size(); ++i) {
      ratios_[i] = SegmentRatio(i, rates_);
    }
  }
}

void Updater::ApplyTo(const Block& block, float* parameters, float* gradients) {
  UpdateRule rule = RuleOf(block);
  if (IsLayerwise(spec_)) {
    rule.lr = static_cast<float>(rates_.lr * ratios_[block.segment]);
  }
  const UpdateBlock at = At(block, parameters, gradients);
  const bool is_finite = (kernels_.*kRules[static_cast<size_t>(spec_.rule)])(rule, at);
  if (!is_finite) {
    is_finite_ = false;
  }
  if (spec_.ema_decay > 0) {
    kernels_.fold_average(static_cast<float>(rates_.average_keep),
                          static_cast<float>(1 - rates_.average_keep), at.parameter,
                          state_.averages() + block.offset, block.count);
  }
}

void Updater::Apply(int64_t begin, int64_t end, float* parameters, float* gradients) {
  TY_CHECK(begin >= 0 && begin <= end && end <= gradient_elements_);
  TY_CHECK(IsElementwise(spec_) || (begin == 0 && end == gradient_elements_));
  applied_.push_back({begin, end});
  const auto ends_before = [](const Block& block, int64_t at) {
    return block.offset + block.count <= at;
  };
  const auto first = std::lower_bound(blocks_.begin(), blocks_.end(), begin, ends_before);
  const auto last = std::lower_bound(
      first, blocks_.end(), end, [](const Block& block, int64_t at) { return block.offset < at; });
  ParallelFor(threads_, last - first, [&](int64_t i) {
    const Block& whole = first[i];
    Block block = whole;
    block.offset = std::max(whole.offset, begin);
    block.count = std::min(whole.offset + whole.count, end) - block.offset;
    ApplyTo(block, parameters, gradients);
  });
}

bool Updater::End(float* gradients) {
  std::sort(applied_.begin(), applied_.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  applied_.push_back({gradient_elements_, gradient_elements_});
  int64_t clear = 0;
  for (const Range& range : applied_) {
    std::fill(gradients + std::min(clear, range.begin), gradients + range.begin, 0.0f);
    clear = std::max(clear, range.end);
  }
  return is_finite_;
}

}  // namespace trainyard::engine::cpu
