// Runs the cases of exchanges over device memory. Each works on emulated devices, one for each
// rank, and the tests see host memory.
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/testing/cuda_on_cpu/nccl/nccl_on_cpu.h"
#include "tests/unit/worker/parallel/device_gang.h"
#include "tests/unit/worker/parallel/exchange_cases.h"
#include "tests/unit/worker/parallel/exchange_rank.h"
#include "worker/parallel/nccl/nccl_exchange.h"
#include "worker/parallel/nccl/nccl_memory.h"
#include "worker/parallel/staged/mirrored_exchange.h"
#include "worker/parallel/wire_exchange.h"

namespace trainyard::parallel {
namespace {

// Adds like the kernel for sums, in the order of the stream.
absl::Status AddLeft(const float* left, float* sums, int64_t count, cudaStream_t stream) {
  CheckCuda(cuda_on_cpu::Enqueue(stream, [left, sums, count] {
    for (int64_t i = 0; i < count; ++i) sums[i] = left[i] + sums[i];
  }));
  return absl::OkStatus();
}

absl::Status ToBf16(const float* from, void* to, int64_t count, cudaStream_t stream) {
  CheckCuda(cuda_on_cpu::Enqueue(stream, [from, to, count] {
    std::transform(from, from + count, static_cast<__nv_bfloat16*>(to),
                   [](float value) { return __float2bfloat16_rn(value); });
  }));
  return absl::OkStatus();
}

absl::Status FromBf16(const void* from, float* to, int64_t count, cudaStream_t stream) {
  CheckCuda(cuda_on_cpu::Enqueue(stream, [from, to, count] {
    const auto* const halves = static_cast<const __nv_bfloat16*>(from);
    std::transform(halves, halves + count, to, [](__nv_bfloat16 half) { return float(half); });
  }));
  return absl::OkStatus();
}

// A rank's memory on its device, and the host memory that the tests see of it.
struct Memory {
  explicit Memory(const ExchangeSetup& setup) : device(setup.place.rank) {
    CheckCuda(cudaSetDevice(device));
    CheckCuda(cudaStreamCreate(&compute));
    const auto elements = static_cast<size_t>(setup.elements);
    Add(reduction, elements);
    for (int slot = 0; slot < setup.slots; ++slot) Add(slots.emplace_back(), elements);
    Add(parameters, static_cast<size_t>(setup.gradient_elements));
  }
  ~Memory() {
    CheckCuda(cudaSetDevice(device));
    CheckCuda(cudaStreamSynchronize(compute));
    CheckCuda(cudaStreamDestroy(compute));
  }

  struct Pair {
    std::vector<float> host;
    std::unique_ptr<DeviceFloats> on_device;

    // Copies in the order of the stream, while the host continues.
    void Load(int64_t begin, int64_t end, cudaStream_t stream) const {
      float* const to = on_device->span().data();
      CheckCuda(cuda_on_cpu::Enqueue(stream, [to, from = host.data(), begin, end] {
        std::copy(from + begin, from + end, to + begin);
      }));
    }
    void Store(int64_t begin, int64_t end) {
      CheckCuda(cudaMemcpy(host.data() + begin, on_device->span().data() + begin,
                           static_cast<size_t>(end - begin) * sizeof(float),
                           cudaMemcpyDeviceToHost));
    }
    absl::Span<float> device() const { return on_device->span(); }
  };
  static void Add(Pair& pair, size_t size) {
    pair.host.resize(size);
    pair.on_device = std::make_unique<DeviceFloats>(pair.host);
  }

  const int device;
  cudaStream_t compute = nullptr;
  Pair reduction, parameters;
  std::vector<Pair> slots;
};

// Copies around each call the memory that it reads and writes.
class OverHost final : public GradientExchange {
 public:
  OverHost(Memory& memory, std::unique_ptr<GradientExchange> inner)
      : memory_(memory), inner_(std::move(inner)) {}
  ~OverHost() override {
    CheckCuda(cudaSetDevice(memory_.device));
    inner_ = nullptr;
  }

  absl::Span<const Bucket> buckets() const override { return inner_->buckets(); }
  bool is_sharded() const override { return inner_->is_sharded(); }
  Bucket OwnBlock(size_t bucket) const override { return inner_->OwnBlock(bucket); }
  absl::Status SetPlan(const ExchangePlan& plan, absl::Span<const int> term_slots) override {
    return inner_->SetPlan(plan, term_slots);
  }
  void set_timeout(absl::Duration timeout) override { inner_->set_timeout(timeout); }
  void set_tracing(bool traces) override { inner_->set_tracing(traces); }
  absl::Status Begin(int64_t step, absl::Span<const double> ballot) override {
    ready_ = 0;
    return inner_->Begin(step, ballot);
  }
  absl::Status Ready(int64_t end) override {
    memory_.reduction.Load(ready_, end, memory_.compute);
    for (const Memory::Pair& slot : memory_.slots) slot.Load(ready_, end, memory_.compute);
    ready_ = end;
    return inner_->Ready(end);
  }
  absl::Status Land(size_t bucket) override {
    TY_RETURN_IF_ERROR(inner_->Land(bucket));
    CheckCuda(cudaStreamSynchronize(memory_.compute));
    const Bucket own = OwnBlock(bucket);
    memory_.reduction.Store(own.begin, own.end);
    return absl::OkStatus();
  }
  absl::Status Share(size_t bucket) override {
    if (is_sharded() && OwnBlock(bucket).end <= Parameters()) {
      memory_.parameters.Load(OwnBlock(bucket).begin, OwnBlock(bucket).end, memory_.compute);
    }
    return inner_->Share(bucket);
  }
  absl::Status End() override { return inner_->End(); }
  int lag() const override { return inner_->lag(); }
  absl::Status Watch(absl::Duration waited) override { return inner_->Watch(waited); }
  absl::Status Finish(absl::Span<double> ballots) override {
    TY_RETURN_IF_ERROR(inner_->Finish(ballots));
    CheckCuda(cudaStreamSynchronize(memory_.compute));
    if (is_sharded()) memory_.parameters.Store(0, Parameters());
    return absl::OkStatus();
  }
  const CommStats& stats() const override { return inner_->stats(); }
  GradientExchange& inner() { return *inner_; }
  Memory& memory() { return memory_; }
  absl::Status GatherBlocks(absl::Span<float> values) override {
    const DeviceFloats device(values);
    TY_RETURN_IF_ERROR(inner_->GatherBlocks(device.span()));
    const std::vector<float> all = device.Read();
    std::copy(all.begin(), all.end(), values.begin());
    return absl::OkStatus();
  }

 private:
  int64_t Parameters() const { return static_cast<int64_t>(memory_.parameters.host.size()); }

  Memory& memory_;
  std::unique_ptr<GradientExchange> inner_;
  int64_t ready_ = 0;
};

WireExchangeOptions OptionsOf(const ExchangeSetup& setup, const Memory& memory) {
  WireExchangeOptions options = {.buckets = setup.buckets,
                                 .gradient_elements = setup.gradient_elements,
                                 .is_sharded = setup.is_sharded,
                                 .reduction = memory.reduction.device(),
                                 .slots = {},
                                 .parameters = memory.parameters.device(),
                                 .plan = setup.plan,
                                 .term_slots = setup.term_slots};
  for (const Memory::Pair& slot : memory.slots) options.slots.push_back(slot.device());
  return options;
}

using MakeInner =
    std::function<absl::StatusOr<std::unique_ptr<GradientExchange>>(const ExchangeSetup&, Memory&)>;

ExchangeKind KindOf(const std::string& name, const MakeInner& make_inner) {
  return {name, [make_inner](const ExchangeSetup& setup) -> absl::StatusOr<RankExchange> {
            cuda_on_cpu::SetDeviceCount(cuda_on_cpu::kMaxDevices);
            const auto memory = std::make_shared<Memory>(setup);
            RankExchange made;
            made.memory = memory;
            made.reduction = absl::MakeSpan(memory->reduction.host);
            for (Memory::Pair& slot : memory->slots) {
              made.slots.push_back(absl::MakeSpan(slot.host));
            }
            made.parameters = absl::MakeSpan(memory->parameters.host);
            TY_ASSIGN_OR_RETURN(auto inner, make_inner(setup, *memory));
            made.exchange = std::make_unique<OverHost>(*memory, std::move(inner));
            return made;
          }};
}

ExchangeKind Mirrored() {
  return KindOf("mirrored", [](const ExchangeSetup& setup, Memory& memory) {
    return MakeMirroredExchange(
        OptionsOf(setup, memory), memory.compute,
        [&setup](WireExchangeOptions mirrors) -> absl::StatusOr<std::unique_ptr<GradientExchange>> {
          auto host = MakeLocalCommunicator(setup.place.group, setup.place.rank);
          host->set_timeout(setup.timeout);
          return MakeWireExchange(std::move(host), std::move(mirrors));
        });
  });
}

ExchangeKind Nccl(const std::string& name, bool keeps_order, bool in_bf16 = false,
                  bool finishes_steps = false) {
  return KindOf(name,
                [keeps_order, in_bf16, finishes_steps](const ExchangeSetup& setup, Memory& memory)
                    -> absl::StatusOr<std::unique_ptr<GradientExchange>> {
                  NcclOptions options;
                  options.rank = setup.place.rank;
                  options.world_size = setup.place.world_size;
                  options.run_dir = setup.place.run_dir;
                  TY_ASSIGN_OR_RETURN(auto device, ConnectNccl(options));
                  auto host = MakeLocalCommunicator(setup.place.group, setup.place.rank);
                  device->set_timeout(setup.timeout);
                  host->set_timeout(setup.timeout);
                  return MakeNcclExchange(std::move(device), std::move(host),
                                          {.memory = OptionsOf(setup, memory),
                                           .keeps_order = keeps_order,
                                           .finishes_steps = finishes_steps,
                                           .compute = memory.compute,
                                           .add_left = AddLeft,
                                           .to_bf16 = in_bf16 ? ToBf16 : nullptr,
                                           .from_bf16 = in_bf16 ? FromBf16 : nullptr});
                });
}

TEST(DeviceExchange, TellsHowLongTheDeviceComputed) {
  for (const ExchangeKind& kind : {Mirrored(), Nccl("nccl", false)}) {
    SCOPED_TRACE(kind.name);
    const exchange_rank::Gang gang = {.kind = kind, .ranks = 2};
    const auto statuses = exchange_rank::RunRanks(
        gang, exchange_rank::OneTermEach(2), [](exchange_rank::Rank& rank) -> absl::Status {
          TY_RETURN_IF_ERROR(rank.Step(1));
          rank.exchange().set_tracing(true);
          TY_RETURN_IF_ERROR(rank.Step(2));
          const CommStats& stats = rank.exchange().stats();
          EXPECT_TRUE(stats.computed.has_value());
          EXPECT_GE(stats.computed.value_or(-absl::Seconds(1)), absl::ZeroDuration());
          return absl::OkStatus();
        });
    EXPECT_THAT(statuses, ::testing::Each(absl::OkStatus()));
  }
}

TEST(DeviceExchange, SumsGradientsInBf16AndTheRestInF32) {
  const exchange_rank::Gang gang = {.kind = Nccl("nccl", false, /*in_bf16=*/true), .ranks = 2};
  const exchange_rank::Terms terms = exchange_rank::OneTermEach(2);
  const std::vector<float> exact = exchange_rank::ExpectedSums(terms.plan, 1);
  const auto statuses =
      exchange_rank::RunRanks(gang, terms, [&exact](exchange_rank::Rank& rank) -> absl::Status {
        TY_RETURN_IF_ERROR(rank.Begin(1));
        TY_RETURN_IF_ERROR(rank.Backward(1));
        for (size_t bucket = 0; bucket < exchange_rank::kBuckets.size(); ++bucket) {
          TY_RETURN_IF_ERROR(rank.exchange().Land(bucket));
        }
        TY_RETURN_IF_ERROR(rank.exchange().End());
        TY_RETURN_IF_ERROR(rank.exchange().Finish({}));
        int64_t rounded = 0;
        for (int64_t i = 0; i < exchange_rank::kElements; ++i) {
          const auto at = static_cast<size_t>(i);
          const float sum = rank.made().reduction[at];
          rounded += sum == exact[at] ? 0 : 1;
          if (i >= exchange_rank::kGradients) {
            EXPECT_EQ(sum, exact[at]) << i;
          }
          // Both terms and their sum are rounded to 8 bits, each by at most one part in 256.
          const float largest = std::abs(exchange_rank::TermValue(1, 0, i)) +
                                std::abs(exchange_rank::TermValue(1, 1, i));
          EXPECT_NEAR(sum, exact[at], largest * std::ldexp(1.0F, -7)) << i;
        }
        EXPECT_GT(rounded, exchange_rank::kGradients / 2);
        const auto bytes = static_cast<double>(rank.exchange().stats().bytes_sent);
        EXPECT_NEAR(bytes, 2.0 * exchange_rank::kGradients, 1024);
        return absl::OkStatus();
      });
  EXPECT_THAT(statuses, ::testing::Each(absl::OkStatus()));
}

// Enqueues five steps, of which two are under way at a time, without waiting for the device except
// in Finish. The gradients of a step are `value`, which the device writes.
absl::Status StepsAhead(GradientExchange& exchange, Memory& memory, int rank) {
  constexpr int64_t kStepsToDo = 5;
  std::vector<std::vector<float>> sums(kStepsToDo);
  for (int64_t step = 0; step < kStepsToDo; ++step) {
    const double ballot = static_cast<double>(10 * step + rank);
    TY_RETURN_IF_ERROR(exchange.Begin(step + 1, {&ballot, 1}));
    const absl::Span<float> reduction = memory.reduction.device();
    const float value = static_cast<float>(100 * step + rank);
    CheckCuda(cuda_on_cpu::Enqueue(memory.compute, [reduction, value] {
      std::fill(reduction.begin(), reduction.end(), value);
    }));
    TY_RETURN_IF_ERROR(exchange.Ready(static_cast<int64_t>(reduction.size())));
    for (size_t bucket = 0; bucket < exchange.buckets().size(); ++bucket) {
      TY_RETURN_IF_ERROR(exchange.Land(bucket));
    }
    TY_RETURN_IF_ERROR(exchange.End());
    CheckCuda(
        cuda_on_cpu::Enqueue(memory.compute, [reduction, kept = &sums[static_cast<size_t>(step)]] {
          kept->assign(reduction.begin(), reduction.end());
        }));
    if (step == 0) continue;
    std::vector<double> ballots(2);
    TY_RETURN_IF_ERROR(exchange.Finish(absl::MakeSpan(ballots)));
    const auto first = static_cast<double>(10 * (step - 1));
    EXPECT_THAT(ballots, ::testing::ElementsAre(first, first + 1));
    EXPECT_GT(*exchange.stats().computed, absl::ZeroDuration());
  }
  std::vector<double> ballots(2);
  TY_RETURN_IF_ERROR(exchange.Finish(absl::MakeSpan(ballots)));
  CheckCuda(cudaStreamSynchronize(memory.compute));
  for (int64_t step = 0; step < kStepsToDo; ++step) {
    EXPECT_THAT(sums[static_cast<size_t>(step)],
                ::testing::Each(static_cast<float>(200 * step + 1)))
        << step;
  }
  return absl::OkStatus();
}

TEST(DeviceExchange, RegistersTheReductionWhileItLasts) {
  const exchange_rank::Gang gang = {.kind = Nccl("nccl", false), .ranks = 2};
  const auto statuses = exchange_rank::RunRanks(gang, exchange_rank::OneTermEach(2),
                                                [](exchange_rank::Rank& rank) -> absl::Status {
                                                  TY_RETURN_IF_ERROR(rank.Step(1));
                                                  EXPECT_GE(cuda_on_cpu::nccl::Registrations(), 1);
                                                  return absl::OkStatus();
                                                });
  EXPECT_THAT(statuses, ::testing::Each(absl::OkStatus()));
  EXPECT_EQ(cuda_on_cpu::nccl::Registrations(), 0);
  EXPECT_EQ(cuda_on_cpu::nccl::ForgottenRegistrations(), 0);
}

TEST(DeviceExchange, MemoryOfNcclIsGivenBack) {
  const int64_t before = cuda_on_cpu::LiveBytes();
  const auto memory = AllocateNcclMemory(1 << 20);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_GE(cuda_on_cpu::LiveBytes(), before + (1 << 20));
  FreeNcclMemory(*memory);
  EXPECT_EQ(cuda_on_cpu::LiveBytes(), before);
  EXPECT_EQ(AllocateNcclMemory(size_t{1} << 50).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(DeviceExchange, TheHostIsAStepAheadOfTheDevices) {
  const exchange_rank::Gang gang = {.kind = Nccl("nccl", false), .ranks = 2};
  const auto statuses = exchange_rank::RunRanks(
      gang, exchange_rank::OneTermEach(2), [](exchange_rank::Rank& rank) -> absl::Status {
        EXPECT_EQ(rank.exchange().lag(), 1);
        auto& exchange = dynamic_cast<OverHost&>(rank.exchange());
        return StepsAhead(exchange.inner(), exchange.memory(), rank.rank());
      });
  EXPECT_THAT(statuses, ::testing::Each(absl::OkStatus()));
}

TEST(DeviceExchange, MayFinishEachStep) {
  const exchange_rank::Gang gang = {
      .kind = Nccl("nccl", false, /*in_bf16=*/false, /*finishes_steps=*/true), .ranks = 2};
  const auto statuses = exchange_rank::RunRanks(gang, exchange_rank::OneTermEach(2),
                                                [](exchange_rank::Rank& rank) -> absl::Status {
                                                  EXPECT_EQ(rank.exchange().lag(), 0);
                                                  for (int step = 1; step <= 3; ++step)
                                                    TY_RETURN_IF_ERROR(rank.Step(step));
                                                  return absl::OkStatus();
                                                });
  EXPECT_THAT(statuses, ::testing::Each(absl::OkStatus()));
}

// Enqueues step 2 of a rank. With `holds`, its device does not begin before that.
absl::Status EnqueueStep(exchange_rank::Rank& rank, const absl::Notification* holds) {
  auto& over_host = dynamic_cast<OverHost&>(rank.exchange());
  GradientExchange& exchange = over_host.inner();
  if (holds != nullptr) {
    CheckCuda(cuda_on_cpu::Enqueue(over_host.memory().compute,
                                   [holds] { holds->WaitForNotification(); }));
  }
  TY_RETURN_IF_ERROR(exchange.Begin(2, {}));
  return exchange.Ready(exchange_rank::kElements);
}

// A rank that ends while its device waits for another one must not wait with it.
TEST(DeviceExchange, ARankThatGivesUpInTheMiddleOfAStepEndsAtOnce) {
  const exchange_rank::Gang gang = {.kind = Nccl("nccl", false), .ranks = 2};
  absl::Notification is_gone;
  const auto statuses = exchange_rank::RunRanks(
      gang, exchange_rank::OneTermEach(2), [&is_gone](exchange_rank::Rank& rank) -> absl::Status {
        TY_RETURN_IF_ERROR(rank.Step(1));
        if (rank.rank() == 1) {
          absl::Status enqueued = EnqueueStep(rank, &is_gone);
          is_gone.WaitForNotification();
          return enqueued;
        }
        absl::Status enqueued = EnqueueStep(rank, nullptr);
        const absl::Duration begin = Clock::Real()->Uptime();
        rank.Leave();
        EXPECT_LT(Clock::Real()->Uptime() - begin, absl::Seconds(5));
        is_gone.Notify();
        return enqueued;
      });
  EXPECT_THAT(statuses, ::testing::Each(absl::OkStatus()));
}

// The device of the second rank does not come to its sums, so that of the first one waits. A wait
// of the host for that device ends with the timeout.
TEST(DeviceExchange, AWaitForTheDeviceOfAStuckGangEnds) {
  const exchange_rank::Gang gang = {
      .kind = Nccl("nccl", false), .ranks = 2, .timeout = absl::Milliseconds(500)};
  absl::Notification is_over;
  const auto statuses = exchange_rank::RunRanks(
      gang, exchange_rank::OneTermEach(2), [&is_over](exchange_rank::Rank& rank) -> absl::Status {
        TY_RETURN_IF_ERROR(rank.Step(1));
        GradientExchange& exchange = dynamic_cast<OverHost&>(rank.exchange()).inner();
        absl::Status status = EnqueueStep(rank, rank.rank() == 1 ? &is_over : nullptr);
        if (rank.rank() == 1) {
          is_over.WaitForNotification();
          return status;
        }
        if (status.ok()) status = exchange.End();
        const absl::Duration begin = Clock::Real()->Uptime();
        while (status.ok()) status = exchange.Watch(Clock::Real()->Uptime() - begin);
        is_over.Notify();
        EXPECT_EQ(exchange.Watch(absl::ZeroDuration()), status) << "is not broken";
        return status;
      });
  EXPECT_EQ(ErrorReason(statuses[0]), "COLLECTIVE_TIMEOUT") << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()), ::testing::HasSubstr("step 2: rank 0: "));
  EXPECT_TRUE(statuses[1].ok()) << statuses[1];
}

INSTANTIATE_TEST_SUITE_P(Device, ExchangeTest,
                         ::testing::Combine(::testing::Values(Mirrored(), Nccl("nccl", true)),
                                            ::testing::Values(1, 2, 3, 4), ::testing::Bool()),
                         NameOfExchange);
INSTANTIATE_TEST_SUITE_P(Device, ExchangeFaultTest, ::testing::Values(Mirrored()),
                         NameOfExchangeKind);

}  // namespace
}  // namespace trainyard::parallel
