// The tables and memory of an update on the device, and the same update on the host by the
// reference's rules.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "tests/unit/worker/engine/backend/cuda/matrices.h"
#include "worker/engine/backend/cuda/kernels/update.h"
#include "worker/engine/backend/reference/update.h"

namespace trainyard::engine::cuda::testing {

using Rule = OptimizerSpec::Rule;

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Parameter {
  int64_t offset, rows, inner, stride;  // stride 0: no packed copy
  bool is_bias;
  Type type;
};
// Parameters of several chunks; with packed copies that consist of whole vectors or not, or
// without; not aligned.
inline const std::vector<Parameter> kParameters = {{0, 600, 16, 24, false, Type::kBf16},
                                                   {9600, 100, 1, 0, true, Type::kF32},
                                                   {9712, 1700, 3, 8, false, Type::kF16},
                                                   {14816, 5, 1, 0, true, Type::kF32},
                                                   {14823, 50, 9, 9, false, Type::kF32}};
inline constexpr int64_t kElements = 15280;
inline constexpr int64_t kStatistics = 48;
inline const std::vector<RunningSegment> kRunning = {{0, 20, 0.1F}, {32, 13, 0.01F}};

inline bool IsExcluded(const OptimizerSpec& spec, const Parameter& parameter) {
  return parameter.is_bias && !spec.decay_bias_and_norm;
}

inline std::vector<double> Doubles(const Floats& values) {
  return {values.begin(), values.end()};
}

// An update's tables and memory.
class Device {
 public:
  explicit Device(const OptimizerSpec& spec, float loss_scale = 0)
      : spec_(spec),
        parameters_(RandomFloats(1, kElements)),
        gradients_(Floats(kElements)),
        slots_(Floats(2 * kElements)),
        averages_(Floats(kElements, kNan)),
        running_(RandomFloats(2, kStatistics)),
        statistics_(Floats(kStatistics)),
        metrics_(Floats{0, 0}),
        count_(Floats{0}),
        scale_(std::vector<LossScale>{{loss_scale, 0}}),
        result_(std::vector<StepResult>{{}}),
        control_(std::vector<StepControl>{{}}),
        running_segments_(kRunning) {
    LayTables();
    const size_t bytes = static_cast<size_t>(
        UpdateWorkspace(spec, static_cast<int64_t>(kParameters.size()), tables_.chunk_count));
    workspace_ = std::make_unique<DeviceArray<uint8_t>>(std::vector<uint8_t>(bytes));
    memory_ = {.parameters = parameters_.data(),
               .gradients = gradients_.data(),
               .gradient_elements = kElements,
               .slots = slots_.data(),
               .slot_stride = kElements,
               .step_count = CountsSteps(spec) ? count_.data() : nullptr,
               .averages = spec.ema_decay > 0 ? averages_.data() : nullptr,
               .running = running_.data(),
               .statistics = statistics_.data(),
               .statistic_elements = kStatistics,
               .loss = metrics_.data(),
               .correct = metrics_.data() + 1,
               .loss_scale = loss_scale > 0 ? scale_.data() : nullptr,
               .results = {result_.data()},
               .control = control_.data(),
               .workspace = workspace_->data()};
  }

  void Run(float lr, const Floats& gradients, const Floats& statistics, float loss, float correct) {
    gradients_.Write(gradients);
    statistics_.Write(statistics);
    metrics_.Write({loss, correct});
    control_.Write({{.lr = lr}});
    Update(spec_, tables_, memory_, nullptr);
  }

  Floats parameters() const { return parameters_.Read(); }
  Floats slots() const { return slots_.Read(); }
  Floats averages() const { return averages_.Read(); }
  Floats running() const { return running_.Read(); }
  float count() const { return count_.Read()[0]; }
  void set_count(float count) { count_.Write({count}); }
  LossScale scale() const { return scale_.Read()[0]; }
  void set_scale(LossScale scale) { scale_.Write({scale}); }
  StepResult result() const { return result_.Read()[0]; }

  void ExpectSumsCleared() const {
    EXPECT_EQ(gradients_.Read(), Floats(kElements));
    EXPECT_EQ(statistics_.Read(), Floats(kStatistics));
    EXPECT_EQ(metrics_.Read(), Floats(2));
  }
  // Each copy holds the parameter as it is now, or what it held at first.
  void ExpectPacked(bool is_written) const {
    const Floats all = parameters();
    for (size_t i = 0; i < kParameters.size(); ++i) {
      const Parameter& p = kParameters[i];
      if (copies_[i] == nullptr) {
        continue;
      }
      Floats expected(all.begin() + p.offset, all.begin() + p.offset + p.rows * p.inner);
      expected = Rounded(expected, p.type);
      if (!is_written) {
        std::fill(expected.begin(), expected.end(), kPadding);
      }
      EXPECT_EQ(copies_[i]->Read(), expected) << "parameter " << i;
      for (const float value : copies_[i]->Padding()) {
        ASSERT_EQ(value, kPadding) << "parameter " << i;
      }
    }
  }

 private:
  void LayTables() {
    std::vector<UpdateSegment> segments;
    std::vector<UpdateChunk> chunks;
    std::vector<PackedWeight> packed;
    for (const Parameter& p : kParameters) {
      const int64_t count = p.rows * p.inner;
      UpdateSegment segment = {.offset = p.offset,
                               .count = count,
                               .is_excluded = IsExcluded(spec_, p),
                               .first_chunk = static_cast<int32_t>(chunks.size())};
      copies_.push_back(nullptr);
      if (p.stride > 0) {
        copies_.back() = std::make_unique<DeviceMatrix>(p.type, p.rows, p.inner, p.stride);
        segment.packed = static_cast<int32_t>(packed.size());
        packed.push_back({p.offset, count, p.inner, p.stride, copies_.back()->view().data, p.type});
      }
      for (int64_t begin = 0; begin < count; begin += kUpdateChunk) {
        chunks.push_back({static_cast<int32_t>(segments.size()),
                          static_cast<int32_t>(std::min(kUpdateChunk, count - begin)),
                          p.offset + begin});
      }
      segment.chunks = static_cast<int32_t>(chunks.size()) - segment.first_chunk;
      segments.push_back(segment);
    }
    segments_ = std::make_unique<DeviceArray<UpdateSegment>>(segments);
    chunks_ = std::make_unique<DeviceArray<UpdateChunk>>(chunks);
    packed_ = std::make_unique<DeviceArray<PackedWeight>>(packed);
    tables_ = {.segments = segments_->data(),
               .segment_count = static_cast<int64_t>(segments.size()),
               .chunks = chunks_->data(),
               .chunk_count = static_cast<int64_t>(chunks.size()),
               .packed = packed_->data(),
               .running = running_segments_.data(),
               .running_count = static_cast<int64_t>(kRunning.size())};
  }

  const OptimizerSpec spec_;
  DeviceArray<float> parameters_, gradients_, slots_, averages_, running_, statistics_, metrics_;
  DeviceArray<float> count_;
  DeviceArray<LossScale> scale_;
  DeviceArray<StepResult> result_;
  DeviceArray<StepControl> control_;
  DeviceArray<RunningSegment> running_segments_;
  std::unique_ptr<DeviceArray<uint8_t>> workspace_;
  std::vector<std::unique_ptr<DeviceMatrix>> copies_;
  std::unique_ptr<DeviceArray<UpdateSegment>> segments_;
  std::unique_ptr<DeviceArray<UpdateChunk>> chunks_;
  std::unique_ptr<DeviceArray<PackedWeight>> packed_;
  UpdateTables tables_;
  UpdateMemory memory_;
};

// Makes the same update on the host, in f64 from the same floats.
struct Host {
  OptimizerSpec spec;
  std::vector<double> parameters = Doubles(RandomFloats(1, kElements));
  std::vector<double> slots = std::vector<double>(2 * kElements);
  std::vector<double> averages = std::vector<double>(kElements);
  std::vector<double> running = Doubles(RandomFloats(2, kStatistics));
  int64_t count = 0;

  void Run(double lr, const Floats& gradients, const Floats& statistics) {
    count = std::min(count + 1, kMaxCountedSteps);
    // The gaps between parameters are zero, so they count in no norm.
    const UpdateRates rates =
        RatesOfUpdate(spec, lr, count, reference::Norm(gradients.data(), kElements));
    const size_t slot_count = SlotNames(spec).size();
    for (const Parameter& p : kParameters) {
      const reference::ParameterState<double> state = {
          .count = p.rows * p.inner,
          .gradient = gradients.data() + p.offset,
          .parameter = parameters.data() + p.offset,
          .first = slot_count > 0 ? slots.data() + p.offset : nullptr,
          .second = slot_count > 1 ? slots.data() + kElements + p.offset : nullptr};
      reference::ApplyRule<double>(spec, rates, IsExcluded(spec, p), state);
      reference::FoldAverage(rates.average_keep, state.parameter, averages.data() + p.offset,
                             state.count);
    }
    for (const RunningSegment& segment : kRunning) {
      for (int64_t i = segment.offset; i < segment.offset + segment.count; ++i) {
        double& value = running[static_cast<size_t>(i)];
        value = (1 - static_cast<double>(segment.momentum)) * value +
                static_cast<double>(segment.momentum) *
                    static_cast<double>(statistics[static_cast<size_t>(i)]);
      }
    }
  }
};

// Random numbers, with zeros where no parameter or statistic lies.
inline Floats RandomGradients(uint64_t seed, float scale) {
  const Floats random = RandomFloats(seed, kElements);
  Floats gradients(kElements);
  for (const Parameter& p : kParameters) {
    for (int64_t i = p.offset; i < p.offset + p.rows * p.inner; ++i) {
      gradients[static_cast<size_t>(i)] = scale * random[static_cast<size_t>(i)];
    }
  }
  return gradients;
}
inline Floats RandomStatistics(uint64_t seed) {
  const Floats random = RandomFloats(seed, kStatistics);
  Floats statistics(kStatistics);
  for (const RunningSegment& segment : kRunning) {
    std::copy_n(random.begin() + segment.offset, segment.count,
                statistics.begin() + segment.offset);
  }
  return statistics;
}
// Compares only the elements of parameters, since the gaps between them belong to no parameter.
template <class T>
std::vector<T> OfParameters(const std::vector<T>& values) {
  std::vector<T> of_parameters;
  for (size_t slot = 0; slot < values.size(); slot += kElements) {
    for (const Parameter& p : kParameters) {
      const auto begin = values.begin() + static_cast<int64_t>(slot) + p.offset;
      of_parameters.insert(of_parameters.end(), begin, begin + p.rows * p.inner);
    }
  }
  return of_parameters;
}

struct Named {
  const char* name;
  OptimizerSpec spec;
};

inline std::vector<Named> AllSpecs() {
  std::vector<Named> specs;
  for (const Rule rule : {Rule::kSgd, Rule::kAdamW, Rule::kAdam, Rule::kLars, Rule::kLamb}) {
    OptimizerSpec plain;
    plain.rule = rule;
    plain.eps = rule == Rule::kLars ? 0 : 1e-6;
    plain.trust_coefficient = 0.02;
    specs.push_back({"plain", plain});
    if (rule == Rule::kSgd || rule == Rule::kLars) {
      plain.momentum = 0.9;
      specs.push_back({"momentum", plain});
      OptimizerSpec nesterov = plain;
      nesterov.nesterov = true;
      specs.push_back({"nesterov", nesterov});
    }
    plain.weight_decay = 0.05;
    specs.push_back({"decay", plain});
    plain.decay_bias_and_norm = false;
    specs.push_back({"decay of some", plain});
    OptimizerSpec clipped = plain;
    clipped.clip_norm = 30;  // below the norm of the gradients, which is about 70
    specs.push_back({"clipped", clipped});
    clipped.clip_norm = 1000;
    specs.push_back({"hardly clipped", clipped});
    plain.ema_decay = 0.9;
    specs.push_back({"averaged", plain});
  }
  return specs;
}

}  // namespace trainyard::engine::cuda::testing
