// The update on the device does what the reference does to each parameter, and all else that it
// promises: packed copies, running statistics, cleared sums, and what it tells the host.
#include "worker/engine/backend/cuda/kernels/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "tests/unit/worker/engine/backend/cuda/kernels_testing.h"
#include "worker/engine/backend/reference/update.h"

namespace trainyard::engine::cuda {
namespace {

using testing::DeviceMatrix;
using testing::ExpectNear;
using testing::Floats;
using testing::kPadding;
using testing::LaunchesSoFar;
using testing::RandomFloats;
using testing::Rounded;
using testing::ShuffleDevice;
using Rule = OptimizerSpec::Rule;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Parameter {
  int64_t offset, rows, inner, stride;  // stride 0: no packed copy
  bool is_bias;
  Type type;
};
// Over several chunks, with packed copies of whole vectors and not; without; not aligned.
const std::vector<Parameter> kParameters = {{0, 600, 16, 24, false, Type::kBf16},
                                            {9600, 100, 1, 0, true, Type::kF32},
                                            {9712, 1700, 3, 8, false, Type::kF16},
                                            {14816, 5, 1, 0, true, Type::kF32},
                                            {14823, 50, 9, 9, false, Type::kF32}};
constexpr int64_t kElements = 15280;
constexpr int64_t kStatistics = 48;
const std::vector<RunningSegment> kRunning = {{0, 20, 0.1F}, {32, 13, 0.01F}};

bool IsExcluded(const OptimizerSpec& spec, const Parameter& parameter) {
  return parameter.is_bias && !spec.decay_bias_and_norm;
}

std::vector<double> Doubles(const Floats& values) {
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
               .step_count = CountsSteps(spec) ? count_.data() : nullptr,
               .averages = spec.ema_decay > 0 ? averages_.data() : nullptr,
               .running = running_.data(),
               .statistics = statistics_.data(),
               .statistic_elements = kStatistics,
               .loss = metrics_.data(),
               .correct = metrics_.data() + 1,
               .loss_scale = loss_scale > 0 ? scale_.data() : nullptr,
               .result = result_.data(),
               .control = control_.data(),
               .workspace = workspace_->data()};
  }

  void Run(float lr, const Floats& gradients, const Floats& statistics, float loss, float correct) {
    gradients_.Assign(gradients);
    statistics_.Assign(statistics);
    metrics_.Assign({loss, correct});
    control_.Assign({{.lr = lr}});
    Update(spec_, tables_, memory_, nullptr);
  }

  Floats parameters() const { return parameters_.ToHost(); }
  Floats slots() const { return slots_.ToHost(); }
  Floats averages() const { return averages_.ToHost(); }
  Floats running() const { return running_.ToHost(); }
  float count() const { return count_.ToHost()[0]; }
  void set_count(float count) { count_.Assign({count}); }
  LossScale scale() const { return scale_.ToHost()[0]; }
  void set_scale(LossScale scale) { scale_.Assign({scale}); }
  StepResult result() const { return result_.ToHost()[0]; }

  void ExpectSumsCleared() const {
    EXPECT_EQ(gradients_.ToHost(), Floats(kElements));
    EXPECT_EQ(statistics_.ToHost(), Floats(kStatistics));
    EXPECT_EQ(metrics_.ToHost(), Floats(2));
  }
  // Each copy holds the parameter as it is, or what it held at first.
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
      EXPECT_EQ(copies_[i]->ToHost(), expected) << "parameter " << i;
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

// The same on the host, in f64 from the same floats.
struct Host {
  OptimizerSpec spec;
  std::vector<double> parameters = Doubles(RandomFloats(1, kElements));
  std::vector<double> slots = std::vector<double>(2 * kElements);
  std::vector<double> averages = std::vector<double>(kElements);
  std::vector<double> running = Doubles(RandomFloats(2, kStatistics));
  int64_t count = 0;

  void Run(double lr, const Floats& gradients, const Floats& statistics) {
    count = std::min(count + 1, kMaxCountedSteps);
    // What lies between parameters counts in no norm: it is zero.
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

// Random, and zero where no parameter or statistic lies.
Floats RandomGradients(uint64_t seed, float scale) {
  const Floats random = RandomFloats(seed, kElements);
  Floats gradients(kElements);
  for (const Parameter& p : kParameters) {
    for (int64_t i = p.offset; i < p.offset + p.rows * p.inner; ++i) {
      gradients[static_cast<size_t>(i)] = scale * random[static_cast<size_t>(i)];
    }
  }
  return gradients;
}
Floats RandomStatistics(uint64_t seed) {
  const Floats random = RandomFloats(seed, kStatistics);
  Floats statistics(kStatistics);
  for (const RunningSegment& segment : kRunning) {
    std::copy_n(random.begin() + segment.offset, segment.count,
                statistics.begin() + segment.offset);
  }
  return statistics;
}
// Of parameters alone: what lies between them is nobody's.
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

std::vector<Named> AllSpecs() {
  std::vector<Named> specs;
  for (const Rule rule : {Rule::kSgd, Rule::kAdamW, Rule::kLars, Rule::kLamb}) {
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

// One for SGD and AdamW, two for LAMB, one more where gradients are looked over before.
int64_t ExpectedLaunches(const OptimizerSpec& spec, bool has_loss_scale) {
  const bool is_surveyed = spec.clip_norm > 0 || spec.rule == Rule::kLars || has_loss_scale;
  return (spec.rule == Rule::kLamb ? 2 : 1) + (is_surveyed ? 1 : 0);
}

TEST(Update, DoesWhatTheReferenceDoesOverSeveralSteps) {
  for (const Named& named : AllSpecs()) {
    for (const float scale : {0.0F, 1024.0F}) {
      SCOPED_TRACE(std::string(RuleName(named.spec.rule)) + ", " + named.name +
                   (scale > 0 ? ", scaled" : ""));
      Device device(named.spec, scale);
      Host host{named.spec};
      for (uint64_t step = 0; step < 4; ++step) {
        const float lr = 0.05F / static_cast<float>(step + 1);
        const Floats statistics = RandomStatistics(20 + step);
        const int64_t launches = LaunchesSoFar();
        device.Run(lr, RandomGradients(10 + step, scale > 0 ? scale : 1), statistics, 2.5F, 0.75F);
        host.Run(static_cast<double>(lr), RandomGradients(10 + step, 1), statistics);
        const StepResult result = device.result();
        if (LaunchesSoFar() > 0) {
          EXPECT_EQ(LaunchesSoFar() - launches, ExpectedLaunches(named.spec, scale > 0));
        }
        EXPECT_EQ(result.loss, 2.5F);
        EXPECT_EQ(result.accuracy, 0.75F);
        EXPECT_EQ(result.not_finite, 0U);
        EXPECT_EQ(result.skipped, 0U);
        device.ExpectSumsCleared();
        device.ExpectPacked(true);
      }
      ExpectNear(OfParameters(device.parameters()), OfParameters(host.parameters), 2e-6, "weights");
      ExpectNear(OfParameters(device.slots()), OfParameters(host.slots), 2e-6, "slots");
      ExpectNear(device.running(), host.running, 1e-6, "running statistics");
      EXPECT_EQ(device.count(), CountsSteps(named.spec) ? 4 : 0);
      if (named.spec.ema_decay > 0) {
        // NaN at first: the first update must not read them.
        host.averages.resize(kElements);
        ExpectNear(OfParameters(device.averages()), OfParameters(host.averages), 2e-6, "averages");
      }
    }
  }
}

TEST(Update, GoesOnFromTheCountOfACheckpoint) {
  for (const Rule rule : {Rule::kAdamW, Rule::kLamb}) {
    OptimizerSpec spec;
    spec.rule = rule;
    spec.ema_decay = 0.99;
    Device device(spec);
    Host host{spec};
    for (const int64_t count : {int64_t{0}, int64_t{700}, kMaxCountedSteps}) {
      device.set_count(static_cast<float>(count));
      host.count = count;
      for (uint64_t step = 0; step < 2; ++step) {
        device.Run(0.01F, RandomGradients(30 + step, 1), RandomStatistics(3), 1, 1);
        host.Run(0.01, RandomGradients(30 + step, 1), RandomStatistics(3));
      }
      EXPECT_EQ(device.count(), static_cast<float>(std::min(count + 2, kMaxCountedSteps)));
    }
    ExpectNear(OfParameters(device.parameters()), OfParameters(host.parameters), 2e-6, "weights");
  }
}

TEST(Update, TellsOfEachGradientThatIsNotFinite) {
  for (const Named& named : AllSpecs()) {
    Device device(named.spec);
    const std::pair<int64_t, float> cases[] = {
        {5000, kNan}, {14818, kInfinity}, {kElements - 8, -kInfinity}};
    for (const auto& [at, bad] : cases) {
      Floats gradients = RandomGradients(4, 1);
      gradients[static_cast<size_t>(at)] = bad;
      device.Run(0.01F, gradients, RandomStatistics(5), 1, 1);
      EXPECT_EQ(device.result().not_finite, 1U) << RuleName(named.spec.rule) << named.name << at;
      EXPECT_EQ(device.result().skipped, 0U);
      EXPECT_EQ(device.result().loss, 1.0F);
      device.ExpectSumsCleared();
      device.Run(0.01F, RandomGradients(6, 1), RandomStatistics(5), 1, 1);
      EXPECT_EQ(device.result().not_finite, 0U) << RuleName(named.spec.rule) << named.name << at;
    }
  }
}

TEST(Update, TellsOfALossThatIsNotFinite) {
  Device device(OptimizerSpec{});
  device.Run(0.01F, RandomGradients(4, 1), RandomStatistics(5), kNan, 1);
  EXPECT_EQ(device.result().not_finite, 1U);
  EXPECT_TRUE(std::isnan(device.result().loss));
}

TEST(Update, SkipsAllButTheScaleWhereScaledGradientsOverflow) {
  for (const Named& named : AllSpecs()) {
    SCOPED_TRACE(std::string(RuleName(named.spec.rule)) + ", " + named.name);
    Device device(named.spec, 512);
    Floats gradients = RandomGradients(4, 512);
    gradients[9650] = kInfinity;
    const Floats slots = device.slots();
    device.Run(0.01F, gradients, RandomStatistics(5), 3, 0.5F);
    const StepResult result = device.result();
    EXPECT_EQ(result.not_finite, 1U);
    EXPECT_EQ(result.skipped, 1U);
    EXPECT_EQ(result.loss, 3);
    EXPECT_EQ(device.parameters(), RandomFloats(1, kElements));
    EXPECT_EQ(device.running(), RandomFloats(2, kStatistics));
    EXPECT_EQ(device.slots(), slots);
    EXPECT_EQ(device.count(), 0);
    EXPECT_EQ(device.scale().scale, 256);
    EXPECT_EQ(device.scale().good_steps, 0);
    device.ExpectSumsCleared();
    device.ExpectPacked(false);

    // The next one goes on as if nothing had been.
    Host host{named.spec};
    device.Run(0.01F, RandomGradients(6, 256), RandomStatistics(5), 1, 1);
    host.Run(static_cast<double>(0.01F), RandomGradients(6, 1), RandomStatistics(5));
    EXPECT_EQ(device.result().skipped, 0U);
    EXPECT_EQ(device.scale().good_steps, 1);
    ExpectNear(OfParameters(device.parameters()), OfParameters(host.parameters), 2e-6, "weights");
    device.ExpectPacked(true);
  }
}

TEST(Update, DoublesTheLossScaleAfterManyGoodUpdates) {
  Device device(OptimizerSpec{}, 1);
  const auto run_from = [&](LossScale scale, float factor) {
    device.set_scale(scale);
    device.Run(0.01F, RandomGradients(4, factor), RandomStatistics(5), 1, 1);
    return device.scale();
  };
  LossScale scale = run_from({1024, kLossScaleGrowth - 2}, 1);
  EXPECT_EQ(scale.scale, 1024);
  EXPECT_EQ(scale.good_steps, kLossScaleGrowth - 1);
  scale = run_from(scale, 1);
  EXPECT_EQ(scale.scale, 2048);
  EXPECT_EQ(scale.good_steps, 0);
  EXPECT_EQ(run_from({kLossScaleMax, kLossScaleGrowth - 1}, 1).scale, kLossScaleMax);
  EXPECT_EQ(run_from({2 * kLossScaleMin, 0}, kInfinity).scale, kLossScaleMin);
  EXPECT_EQ(run_from({kLossScaleMin, 0}, kInfinity).scale, kLossScaleMin);
}

TEST(Update, GivesTheSameBitsInAnyOrderOfThreads) {
  for (const Named& named : AllSpecs()) {
    std::vector<Floats> results[2];
    for (uint64_t order = 0; order < 2; ++order) {
      ShuffleDevice(100 + order);
      Device device(named.spec);
      device.Run(0.01F, RandomGradients(4, 1), RandomStatistics(5), 1, 1);
      device.Run(0.01F, RandomGradients(5, 1), RandomStatistics(6), 1, 1);
      results[order] = {device.parameters(), device.slots(), device.running()};
    }
    EXPECT_EQ(results[0], results[1]) << RuleName(named.spec.rule) << named.name;
  }
}

TEST(Exchange, SwapsAllElements) {
  for (const int64_t count : {1, 7, 4096, 50001}) {
    const Floats a = RandomFloats(1, count);
    const Floats b = RandomFloats(2, count);
    const DeviceArray<float> on_device_a(a);
    const DeviceArray<float> on_device_b(b);
    Exchange(on_device_a.data(), on_device_b.data(), count, nullptr);
    EXPECT_EQ(on_device_a.ToHost(), b);
    EXPECT_EQ(on_device_b.ToHost(), a);
  }
}

}  // namespace
}  // namespace trainyard::engine::cuda
