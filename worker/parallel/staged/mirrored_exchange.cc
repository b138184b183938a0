// Copies buckets between the device and pinned mirrors on the host, around an exchange of the
// mirrors.
#include "worker/parallel/staged/mirrored_exchange.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "worker/parallel/nccl/device_handles.h"
#include "worker/parallel/staged/mirror.h"

namespace trainyard::parallel {
namespace {

class MirroredExchange final : public GradientExchange {
 public:
  MirroredExchange(WireExchangeOptions memory, cudaStream_t compute)
      : memory_(std::move(memory)), compute_(compute) {}

  ~MirroredExchange() override {
    inner_ = nullptr;
    // Copies must not outlive their memory.
    (void)cudaStreamSynchronize(copies_.get());
    (void)cudaStreamSynchronize(compute_);
  }

  absl::Status Open(const MakeHostExchange& make_host) {
    TY_RETURN_IF_ERROR(copies_.Create());
    TY_RETURN_IF_ERROR(begun_.Create(EventTimes::kTaken));
    TY_RETURN_IF_ERROR(done_.Create());
    mirrored_.resize(memory_.buckets.size());
    for (Copy& copy : mirrored_) {
      TY_RETURN_IF_ERROR(copy.ready.Create(EventTimes::kTaken));
      TY_RETURN_IF_ERROR(copy.done.Create());
    }
    TY_RETURN_IF_ERROR(reduction_.Create(memory_.reduction.size()));
    TY_RETURN_IF_ERROR(parameters_.Create(memory_.parameters.size()));
    slots_.resize(memory_.slots.size());
    for (Mirror& slot : slots_) TY_RETURN_IF_ERROR(slot.Create(memory_.reduction.size()));
    WireExchangeOptions mirrors = memory_;
    mirrors.reduction = reduction_.span();
    mirrors.parameters = parameters_.span();
    for (size_t i = 0; i < slots_.size(); ++i) mirrors.slots[i] = slots_[i].span();
    TY_ASSIGN_OR_RETURN(inner_, make_host(std::move(mirrors)));
    return absl::OkStatus();
  }

  absl::Span<const Bucket> buckets() const override { return memory_.buckets; }
  bool is_sharded() const override { return inner_->is_sharded(); }
  Bucket OwnBlock(size_t bucket) const override { return inner_->OwnBlock(bucket); }
  absl::Status SetPlan(const ExchangePlan& plan, absl::Span<const int> term_slots) override {
    memory_.plan = plan;
    memory_.term_slots.assign(term_slots.begin(), term_slots.end());
    return inner_->SetPlan(plan, term_slots);
  }
  void set_timeout(absl::Duration timeout) override { inner_->set_timeout(timeout); }
  void set_tracing(bool traces) override {
    traces_ = traces;
    inner_->set_tracing(traces);
  }

  absl::Status Begin(int64_t step, absl::Span<const double> ballot) override {
    ready_ = announced_ = 0;
    begin_uptime_ = Clock::Real()->Uptime();
    TY_RETURN_IF_ERROR(Mark(begun_, compute_));
    return inner_->Begin(step, ballot);
  }

  // Sends the buckets on their way to the host, while the training continues.
  absl::Status Ready(int64_t end) override {
    for (; ready_ < buckets().size() && buckets()[ready_].end <= end; ++ready_) {
      const Copy& copy = mirrored_[ready_];
      TY_RETURN_IF_ERROR(Mark(copy.ready, compute_));
      TY_RETURN_IF_ERROR(Follow(copies_.get(), copy.ready));
      for (const int slot : memory_.term_slots) {
        const bool is_reduction = slot < 0;
        const auto at = static_cast<size_t>(slot);
        TY_RETURN_IF_ERROR(Load(is_reduction ? memory_.reduction : memory_.slots[at],
                                is_reduction ? reduction_ : slots_[at], buckets()[ready_],
                                copies_.get()));
      }
      TY_RETURN_IF_ERROR(Mark(copy.done, copies_.get()));
    }
    // Announces what has arrived in the meantime.
    while (announced_ < ready_ && cudaEventQuery(mirrored_[announced_].done.get()) == cudaSuccess) {
      TY_RETURN_IF_ERROR(Announce());
    }
    (void)cudaGetLastError();  // "not ready" is not an error of a later launch
    return absl::OkStatus();
  }

  absl::Status Land(size_t bucket) override {
    while (announced_ < ready_) {
      TY_RETURN_IF_ERROR(
          FromCuda(cudaEventSynchronize(mirrored_[announced_].done.get()), "mirroring a bucket"));
      TY_RETURN_IF_ERROR(Announce());
    }
    TY_RETURN_IF_ERROR(inner_->Land(bucket));
    return Store(reduction_, memory_.reduction, OwnBlock(bucket));
  }

  absl::Status Share(size_t bucket) override {
    if (IsOfParameters(bucket)) {
      TY_RETURN_IF_ERROR(Load(memory_.parameters, parameters_, OwnBlock(bucket), compute_));
      TY_RETURN_IF_ERROR(AwaitCompute());
    }
    return inner_->Share(bucket);
  }

  absl::Status Finish(absl::Span<double> ballots) override {
    TY_RETURN_IF_ERROR(inner_->Finish(ballots));
    stats_ = inner_->stats();
    if (!mirrored_.empty()) TY_RETURN_IF_ERROR(AddComputed());
    for (size_t bucket = 0; bucket < buckets().size(); ++bucket) {
      if (!IsOfParameters(bucket)) continue;
      const Bucket all = buckets()[bucket];
      const Bucket own = OwnBlock(bucket);
      TY_RETURN_IF_ERROR(Store(parameters_, memory_.parameters, {all.begin, own.begin}));
      TY_RETURN_IF_ERROR(Store(parameters_, memory_.parameters, {own.end, all.end}));
    }
    // The mirrors are written again from the next step's first bucket on.
    return AwaitCompute();
  }

  const CommStats& stats() const override { return stats_; }

  absl::Status GatherBlocks(absl::Span<float> values) override {
    Mirror mirror;
    TY_RETURN_IF_ERROR(mirror.Create(values.size()));
    const Bucket all = {0, static_cast<int64_t>(values.size())};
    TY_RETURN_IF_ERROR(Load(values, mirror, all, compute_));
    TY_RETURN_IF_ERROR(AwaitCompute());
    TY_RETURN_IF_ERROR(inner_->GatherBlocks(mirror.span()));
    TY_RETURN_IF_ERROR(Store(mirror, values, all));
    return AwaitCompute();
  }

 private:
  struct Copy {
    OwnedEvent ready;
    OwnedEvent done;
  };

  static absl::Status Transfer(float* to, const float* from, const Bucket& part,
                               cudaMemcpyKind kind, cudaStream_t stream) {
    if (part.size() == 0) return absl::OkStatus();
    return FromCuda(cudaMemcpyAsync(to + part.begin, from + part.begin,
                                    static_cast<size_t>(part.size()) * sizeof(float), kind, stream),
                    "mirroring a bucket");
  }
  static absl::Status Load(absl::Span<float> device, const Mirror& mirror, const Bucket& part,
                           cudaStream_t stream) {
    return Transfer(mirror.span().data(), device.data(), part, cudaMemcpyDeviceToHost, stream);
  }
  absl::Status Store(const Mirror& mirror, absl::Span<float> device, const Bucket& part) const {
    return Transfer(device.data(), mirror.span().data(), part, cudaMemcpyHostToDevice, compute_);
  }

  // Backward ended when the last bucket was ready. The host saw that when the bucket had been
  // copied.
  absl::Status AddComputed() {
    TY_ASSIGN_OR_RETURN(const absl::Duration took, Between(begun_, mirrored_.back().ready));
    stats_.computed = took;
    if (!traces_) return absl::OkStatus();
    stats_.events.push_back({.kind = CommEvent::Kind::kCompute,
                             .bucket = -1,
                             .begin = std::max(begin_uptime_, copied_uptime_ - took),
                             .end = copied_uptime_,
                             .bytes = 0});
    return absl::OkStatus();
  }

  bool IsOfParameters(size_t bucket) const {
    return is_sharded() && buckets()[bucket].begin < memory_.gradient_elements;
  }
  absl::Status Announce() {
    copied_uptime_ = Clock::Real()->Uptime();
    return inner_->Ready(buckets()[announced_++].end);
  }
  // Waits for copies and kernels. None of them waits for another rank.
  absl::Status AwaitCompute() {
    TY_RETURN_IF_ERROR(Mark(done_, compute_));
    return FromCuda(cudaEventSynchronize(done_.get()), "mirroring a bucket");
  }

  WireExchangeOptions memory_;
  const cudaStream_t compute_;
  Mirror reduction_, parameters_;
  std::vector<Mirror> slots_;
  OwnedStream copies_;
  OwnedEvent begun_;  // the computation of the step may begin
  OwnedEvent done_;
  std::vector<Copy> mirrored_;
  std::unique_ptr<GradientExchange> inner_;
  size_t ready_ = 0;
  size_t announced_ = 0;
  bool traces_ = false;
  absl::Duration begin_uptime_;
  absl::Duration copied_uptime_;  // when the last bucket was seen in the mirror
  CommStats stats_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GradientExchange>> MakeMirroredExchange(
    WireExchangeOptions memory, cudaStream_t compute, const MakeHostExchange& make_host) {
  auto exchange = std::make_unique<MirroredExchange>(std::move(memory), compute);
  TY_RETURN_IF_ERROR(exchange->Open(make_host));
  return exchange;
}

}  // namespace trainyard::parallel
