// Tests when convolutions take over work of the batch norms around them: where cuDNN has plans for
// it, and where the times that were measured say that it is faster. The emulated cuDNN takes as
// long as a test says.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_on_cpu/cudnn/cudnn_on_cpu.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/backend/cuda/cuda_executable.h"
#include "worker/engine/graph/graph_builder.h"

namespace trainyard::engine {
namespace {

using cuda_on_cpu::ConvolutionShape;

// The microseconds by which the parts with a batch norm in them are slower than those without.
struct Extra {
  int64_t forward = 0;
  int64_t weight_gradient = 0;
  int64_t input_gradient = 0;
};

// The fusions of a program: norms that are not written, and gradients that are summed up where they
// are made.
struct Fused {
  int norms = 0;
  int sums = 0;

  friend bool operator==(const Fused&, const Fused&) = default;
  friend void PrintTo(const Fused& fused, std::ostream* out) {
    *out << fused.norms << " norms, " << fused.sums << " sums";
  }
};

// Returns the largest distance of a gradient, as a share of the norm of the expected one. `found`
// are the gradients of the loss times `scale`.
double Distance(testing::NamedValues found, const testing::NamedValues& expected, double scale) {
  double largest = 0;
  for (const auto& [name, values] : expected) {
    double norm = 0, difference = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<double>(values[i]);
      norm = std::hypot(norm, value);
      difference = std::hypot(difference, static_cast<double>(found[name][i]) / scale - value);
    }
    largest = std::max(largest, difference / norm);
  }
  return largest;
}

constexpr Fused kNone = {0, 0};
constexpr Fused kAll = {1, 1};

class NormFusions : public ::testing::Test {
 protected:
  ~NormFusions() override {
    cuda_on_cpu::SetConvolutionTimes({});
    cuda_on_cpu::RefuseConvolutions({});
  }

  // Each plan of a convolution takes 100 us from here on, and more with a batch norm in it.
  static void SetTimes(const Extra& extra) {
    cuda_on_cpu::SetConvolutionTimes([extra](const ConvolutionShape& shape) -> int64_t {
      if (shape.has_norm_sums) return 100 + extra.input_gradient;
      if (!shape.is_normalised) return 100;
      return 100 + (shape.kind == ConvolutionShape::Kind::kForward ? extra.forward
                                                                   : extra.weight_gradient);
    });
  }

  static Fused CountFused(const std::vector<CallWork>& work, int64_t rows = 8) {
    Fused fused;
    const auto image = static_cast<double>(rows * 17 * 17 * 8 * 2);
    for (const CallWork& call : work) {
      // It reads its input at most once, and writes nothing of that size.
      const bool is_unwritten = call.bytes + call.more_bytes < 1.5 * image;
      if (call.name == "bn1 batch_norm+relu" && is_unwritten) ++fused.norms;
      if (call.op == "conv2d_input_gradient" && call.kernels == 2) ++fused.sums;
    }
    return fused;
  }

  std::unique_ptr<Executable> Compile(Backend& backend, const CompileOptions& options) {
    auto executable = backend.Compile(model_, {}, options);
    EXPECT_TRUE(executable.ok()) << executable.status();
    return *std::move(executable);
  }
  Fused FusedIn(Backend& backend, const CompileOptions& options) {
    const std::unique_ptr<Executable> executable = Compile(backend, options);
    EXPECT_TRUE(executable->fallbacks().empty());
    return CountFused(dynamic_cast<cuda::CudaExecutable&>(*executable).StepWork(),
                      options.max_rows);
  }
  Fused FusedIn(const CudaBackendOptions& backend) {
    return FusedIn(**MakeCudaBackend(backend), options_);
  }
  // With measurements, as Extra says.
  Fused FusedWith(const Extra& extra) {
    SetTimes(extra);
    return FusedIn({.autotunes = true});
  }
  static Graph Model() {
    GraphBuilder b({3, 17, 17});
    ValueId x = b.Conv2d("conv1", b.input(), {.channels = 8, .padding = 1, .bias = false});
    x = b.Relu(b.BatchNorm("bn1", x));
    x = b.Conv2d("conv2", x, {.channels = 16, .padding = 1, .bias = false});
    x = b.Relu(b.BatchNorm("bn2", x));
    b.SoftmaxCrossEntropy(b.Linear("fc", b.Flatten(b.GlobalAvgPool(x)), 4));
    return *std::move(b).Build();
  }

  const Graph model_ = Model();
  // There are 2312 pixels, so a norm takes two launches.
  const CompileOptions options_ = {
      .max_rows = 8, .precision = Precision::kF16, .passes = {.recompute_norms = false}};
};

// One pass over these images takes 2 us, and hardly more than the launch. The gradient of a weight
// whose input is normalised is an f16, which takes a launch to convert; so does what cuDNN reads of
// a norm to sum up its gradient.
TEST_F(NormFusions, AreTakenWhereTheyAreFaster) {
  EXPECT_EQ(FusedWith({0, 0, 0}), kAll);
  EXPECT_EQ(FusedWith({1, 0, 0}), (Fused{0, 1}));
  EXPECT_EQ(FusedWith({0, 1, 0}), (Fused{0, 1}));
  EXPECT_EQ(FusedWith({0, 0, 1}), (Fused{1, 0}));
  EXPECT_EQ(FusedWith({5, -5, 0}), kAll) << "the sum of the times counts";
  EXPECT_EQ(FusedWith({-5, 6, -1}), (Fused{0, 1}));
  EXPECT_EQ(FusedWith({50, 50, 50}), kNone);
}

// A norm of few pixels takes its statistics and writes its output in one launch, which stays. So
// does that of its gradient.
TEST_F(NormFusions, SaveNoLaunchOfFewPixels) {
  SetTimes({0, 0, 0});
  CompileOptions few = options_;
  few.max_rows = 1;
  EXPECT_EQ(FusedIn(**MakeCudaBackend({.autotunes = true}), few), (Fused{1, 0}))
      << "the convolution takes the statistics";
  cuda_on_cpu::RefuseConvolutions([](const ConvolutionShape& s) { return s.has_statistics; });
  EXPECT_EQ(FusedIn(**MakeCudaBackend({.autotunes = true}), few), kNone);
  EXPECT_EQ(FusedIn({.autotunes = true}), kAll);
}

TEST_F(NormFusions, AreNotTakenWhereNothingIsMeasured) {
  SetTimes({-50, -50, -50});
  EXPECT_EQ(FusedIn({.autotunes = false}), kNone);
  const auto backend = *MakeCudaBackend({.autotunes = true});
  EXPECT_EQ(CountFused(backend->Plan(model_, {}, options_)->work), kNone);
}

TEST_F(NormFusions, CanBeForcedAndForbidden) {
  SetTimes({50, 50, 50});
  EXPECT_EQ(FusedIn({.autotunes = true, .fusions = Fusions::kAlways}), kAll);
  EXPECT_EQ(FusedIn({.autotunes = false, .fusions = Fusions::kAlways}), kAll);
  SetTimes({-50, -50, -50});
  EXPECT_EQ(FusedIn({.autotunes = true, .fusions = Fusions::kNever}), kNone);
}

// If one of the readers needs the output, it must be written, so the others read it as well.
TEST_F(NormFusions, AreNotTakenWhereCudnnRefuses) {
  SetTimes({-50, -50, -50});
  const auto refuse = [](ConvolutionShape::Kind kind) {
    cuda_on_cpu::RefuseConvolutions([kind](const ConvolutionShape& shape) {
      return shape.kind == kind && (shape.is_normalised || shape.has_norm_sums);
    });
  };
  for (const Fusions fusions : {Fusions::kWhereFaster, Fusions::kAlways}) {
    const CudaBackendOptions options = {.autotunes = true, .fusions = fusions};
    refuse(ConvolutionShape::Kind::kForward);
    EXPECT_EQ(FusedIn(options), (Fused{0, 1}));
    refuse(ConvolutionShape::Kind::kWeightGradient);
    EXPECT_EQ(FusedIn(options), (Fused{0, 1}));
    refuse(ConvolutionShape::Kind::kInputGradient);
    EXPECT_EQ(FusedIn(options), (Fused{1, 0}));
  }
}

// cuDNN takes all rows for one group, and has these plans for f16 alone.
TEST_F(NormFusions, AreNotTakenWhereCudnnComputesSomethingElse) {
  const auto backend = *MakeCudaBackend({.autotunes = false, .fusions = Fusions::kAlways});
  EXPECT_EQ(FusedIn(*backend, options_), kAll);
  CompileOptions options = options_;
  options.max_groups = 2;
  EXPECT_EQ(FusedIn(*backend, options), kNone);
  for (const Precision precision : {Precision::kBf16, Precision::kTf32, Precision::kF32}) {
    options = options_;
    options.precision = precision;
    EXPECT_EQ(FusedIn(*backend, options), kNone);
  }
}

// If the output is computed again for the gradient of the weight, only the convolution reads the
// first one; for that, bf16 has plans, too.
TEST_F(NormFusions, NeedOnlyTheForwardPlanIfTheOutputIsComputedAgain) {
  const auto backend = *MakeCudaBackend({.autotunes = false, .fusions = Fusions::kAlways});
  CompileOptions options = options_;
  options.passes.recompute_norms = true;
  EXPECT_EQ(FusedIn(*backend, options), kAll);
  options.precision = Precision::kBf16;
  EXPECT_EQ(FusedIn(*backend, options), (Fused{1, 0}));
}

// The times of another rank decide, and not those that this one would measure.
TEST_F(NormFusions, AreTheSameOnRanksThatTakeChoicesOver) {
  for (const int64_t extra : {-50, 50}) {
    SetTimes({extra, extra, extra});
    const auto leader = *MakeCudaBackend({.autotunes = true});
    const std::unique_ptr<Executable> compiled = Compile(*leader, options_);
    SetTimes({-extra, -extra, -extra});
    CompileOptions options = options_;
    options.choices = compiled->MeasuredChoices();
    const int64_t before = cuda_on_cpu::PlansRun();
    EXPECT_EQ(FusedIn(**MakeCudaBackend({.autotunes = true}), options), extra < 0 ? kAll : kNone);
    EXPECT_EQ(cuda_on_cpu::PlansRun(), before);
  }
}

TEST_F(NormFusions, AreKeptInTheFolderOfPlans) {
  for (const int64_t extra : {-50, 50}) {
    const trainyard::testing::TempDir folder;
    const CudaBackendOptions options = {.plan_cache_folder = folder.path(), .autotunes = true};
    const Fused expected = extra < 0 ? kAll : kNone;
    SetTimes({extra, extra, extra});
    EXPECT_EQ(FusedIn(options), expected);
    SetTimes({-extra, -extra, -extra});
    EXPECT_EQ(FusedIn(options), expected);
    // A plan of memory follows what was measured, too.
    const auto backend = *MakeCudaBackend(options);
    EXPECT_EQ(CountFused(backend->Plan(model_, {}, options_)->work), expected);
  }
}

// The tail of an epoch takes the engines of the largest batch, and their times by rows. Gradients
// are as far from the reference's as those of a step without fusions.
TEST_F(NormFusions, ServeATailWithoutMeasuring) {
  SetTimes({-50, -50, -50});
  const std::unique_ptr<Executable> fused =
      Compile(**MakeCudaBackend({.autotunes = true}), options_);
  const std::unique_ptr<Executable> plain =
      Compile(**MakeCudaBackend({.autotunes = false, .fusions = Fusions::kNever}), options_);
  const std::unique_ptr<Executable> exact =
      testing::Compile("reference_f64", model_, {}, {.max_rows = 8});
  for (Executable* each : {fused.get(), plain.get()}) {
    testing::RandomizeState(1, *each);
    testing::WriteState(*each, "loss_scale", {256, 0});
  }
  testing::RandomizeState(1, *exact);
  for (const int64_t rows : {8, 5, 3}) {
    const testing::TestBatch batch = testing::RandomBatch(2, model_, rows);
    const int64_t before = cuda_on_cpu::PlansRun();
    ASSERT_TRUE(fused->Accumulate(batch.batch(), 1, nullptr).ok());
    const testing::NamedValues gradients = testing::Gradients(model_, *fused);
    EXPECT_EQ(cuda_on_cpu::PlansRun() - before, 5) << "two forward, three gradients";
    for (Executable* each : {plain.get(), exact.get()}) {
      ASSERT_TRUE(each->Accumulate(batch.batch(), 1, nullptr).ok());
    }
    const testing::NamedValues expected = testing::Gradients(model_, *exact);
    const double of_fused = Distance(gradients, expected, 256);
    const double of_plain = Distance(testing::Gradients(model_, *plain), expected, 256);
    // Rectifiers that decide otherwise than in f64 make most of it.
    EXPECT_LT(of_plain, 0.1) << rows << " rows";
    EXPECT_LT(of_fused, 0.1) << rows << " rows";
    for (Executable* each : {fused.get(), plain.get(), exact.get()}) {
      ASSERT_TRUE(each->Update(0).ok());
    }
  }
}

TEST_F(NormFusions, LaunchTheKernelsThatAreCounted) {
  for (const Fusions fusions : {Fusions::kAlways, Fusions::kNever}) {
    const std::unique_ptr<Executable> executable =
        Compile(**MakeCudaBackend({.autotunes = false, .fusions = fusions}), options_);
    testing::RandomizeState(1, *executable);
    const testing::TestBatch batch = testing::RandomBatch(2, model_, 8);
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(executable->StartStep(batch.batch(), 0).ok());
      ASSERT_TRUE(executable->FinishUpdate().ok());
    }
    const auto& cuda = dynamic_cast<cuda::CudaExecutable&>(*executable);
    int64_t kernels = 0;
    for (const CallWork& call : cuda.StepWork()) kernels += call.kernels;
    EXPECT_EQ(cuda.StepNodes(8), kernels);
  }
}

// The output takes no memory.
TEST_F(NormFusions, SaveTheMemoryOfTheOutput) {
  const auto unshared = [&](Fusions fusions) {
    const auto backend = *MakeCudaBackend({.autotunes = false, .fusions = fusions});
    return backend->Plan(model_, {}, options_)->memory.activations_unshared;
  };
  constexpr int64_t kOutput = 8 * 17 * 17 * 8 * 2;
  EXPECT_LT(unshared(Fusions::kAlways), unshared(Fusions::kNever) - kOutput / 2);
}

}  // namespace
}  // namespace trainyard::engine
