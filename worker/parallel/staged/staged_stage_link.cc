// Copies values between the device and pinned mirrors, in the order of the stage's own work, around
// a link over host memory.
#include "worker/parallel/staged/staged_stage_link.h"

#include <utility>
#include <vector>

#include "common/base/status_macros.h"
#include "worker/parallel/nccl/device_handles.h"
#include "worker/parallel/staged/mirror.h"

namespace trainyard::parallel {
namespace {

class StagedStageLink final : public StageLink {
 public:
  StagedStageLink(HostLines host, int slots, cudaStream_t compute)
      : compute_(compute),
        slots_(static_cast<size_t>(slots)),
        host_(std::make_unique<HostStageLink>(std::move(host), slots)) {}

  ~StagedStageLink() override {
    // The thread that sends waits for copies; after it, none of them may outlive its mirror.
    host_ = nullptr;
    (void)cudaStreamSynchronize(compute_);
  }

  absl::Status Open(size_t floats_max) {
    for (Slot& slot : slots_) {
      TY_RETURN_IF_ERROR(slot.out.Create(floats_max));
      TY_RETURN_IF_ERROR(slot.in.Create(floats_max));
      TY_RETURN_IF_ERROR(slot.written.Create());
      TY_RETURN_IF_ERROR(slot.read.Create());
    }
    return absl::OkStatus();
  }

  absl::Status Send(int slot, absl::Span<const float> values) override {
    const Slot& of = At(slot);
    const absl::Span<float> mirror = of.out.span().first(values.size());
    TY_RETURN_IF_ERROR(
        Copy(mirror.data(), values.data(), values.size(), cudaMemcpyDeviceToHost, of.written));
    // None of the work before it waits for another rank, so this wait ends.
    host_->SendWhen([event = of.written.get()] { return Await(event); }, slot, mirror);
    return absl::OkStatus();
  }
  absl::Status AwaitSent(int slot) override { return host_->AwaitSent(slot); }

  absl::Status Receive(int slot, absl::Span<float> values) override {
    const Slot& of = At(slot);
    const absl::Span<float> mirror = of.in.span().first(values.size());
    TY_RETURN_IF_ERROR(Await(of.read.get()));
    TY_RETURN_IF_ERROR(host_->Receive(slot, mirror));
    return Copy(values.data(), mirror.data(), values.size(), cudaMemcpyHostToDevice, of.read);
  }
  // Values that arrive are copied in the order of the stage's work.
  absl::Status Release(int) override { return absl::OkStatus(); }

  absl::Status SendNumbers(absl::Span<const float> numbers) override {
    return host_->SendNumbers(numbers);
  }
  absl::Status ReceiveNumbers(absl::Span<float> numbers) override {
    return host_->ReceiveNumbers(numbers);
  }
  void set_timeout(absl::Duration timeout) override { host_->set_timeout(timeout); }

 private:
  struct Slot {
    Mirror out;
    Mirror in;
    OwnedEvent written;  // `out` holds what leaves
    OwnedEvent read;     // `in` may be written again
  };

  const Slot& At(int slot) const { return slots_[static_cast<size_t>(slot)]; }
  static absl::Status Await(cudaEvent_t event) {
    return FromCuda(cudaEventSynchronize(event), "mirroring values of a stage");
  }
  absl::Status Copy(float* to, const float* from, size_t count, cudaMemcpyKind kind,
                    const OwnedEvent& done) const {
    TY_RETURN_IF_ERROR(FromCuda(cudaMemcpyAsync(to, from, count * sizeof(float), kind, compute_),
                                "mirroring values of a stage"));
    return FromCuda(cudaEventRecord(done.get(), compute_), "mirroring values of a stage");
  }

  const cudaStream_t compute_;
  std::vector<Slot> slots_;
  std::unique_ptr<HostStageLink> host_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StageLink>> MakeStagedStageLink(HostLines host, int slots,
                                                               size_t floats_max,
                                                               cudaStream_t compute) {
  auto link = std::make_unique<StagedStageLink>(std::move(host), slots, compute);
  TY_RETURN_IF_ERROR(link->Open(floats_max));
  return std::unique_ptr<StageLink>(std::move(link));
}

}  // namespace trainyard::parallel
