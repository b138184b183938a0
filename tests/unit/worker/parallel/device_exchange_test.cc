// Runs the cases of exchanges over device memory. Each works on emulated devices, one for each
// rank, and the tests see host memory.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "gtest/gtest.h"
#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/unit/worker/parallel/device_gang.h"
#include "tests/unit/worker/parallel/exchange_cases.h"
#include "worker/parallel/nccl/nccl_exchange.h"
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
  absl::Status Finish(absl::Span<double> ballots) override {
    TY_RETURN_IF_ERROR(inner_->Finish(ballots));
    CheckCuda(cudaStreamSynchronize(memory_.compute));
    if (is_sharded()) memory_.parameters.Store(0, Parameters());
    return absl::OkStatus();
  }
  const CommStats& stats() const override { return inner_->stats(); }
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

ExchangeKind Nccl(const std::string& name, bool keeps_order) {
  return KindOf(name,
                [keeps_order](const ExchangeSetup& setup,
                              Memory& memory) -> absl::StatusOr<std::unique_ptr<GradientExchange>> {
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
                                           .compute = memory.compute,
                                           .add_left = AddLeft});
                });
}

INSTANTIATE_TEST_SUITE_P(Device, ExchangeTest,
                         ::testing::Combine(::testing::Values(Mirrored(), Nccl("nccl", true)),
                                            ::testing::Values(1, 2, 3, 4), ::testing::Bool()),
                         NameOfExchange);
INSTANTIATE_TEST_SUITE_P(Device, ExchangeFaultTest, ::testing::Values(Mirrored()),
                         NameOfExchangeKind);

}  // namespace
}  // namespace trainyard::parallel
