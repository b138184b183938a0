// Implements the stream, events and messages of a step over NCCL.
#include "worker/parallel/nccl/nccl_exchange.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "worker/parallel/nccl/device_handles.h"
#include "worker/parallel/nccl/nccl_memory.h"
#include "worker/parallel/nccl/step_events.h"

namespace trainyard::parallel {
namespace {

// The most that lag() can be: the host enqueues a step while the device communicates for the one
// before.
constexpr int kLag = 1;

constexpr int64_t kBf16Bytes = 2;

// A step that was begun.
struct Step {
  int64_t number = 0;
  std::vector<double> ballot;
  Collective last;  // that was enqueued for it
  StepEvents events;
  StepSight sight;
};

class NcclExchange final : public GradientExchange {
 public:
  NcclExchange(std::shared_ptr<NcclCommunicator> device, std::unique_ptr<Communicator> host,
               NcclExchangeOptions options)
      : device_(std::move(device)),
        host_(std::move(host)),
        options_(std::move(options)),
        blocks_(*host_, options_.memory),
        buckets_(blocks_.buckets()) {}

  ~NcclExchange() override {
    // The work of an unfinished step may wait for ranks that are gone. It uses memory of this
    // object, so it has to end before.
    if (is_begun_ || ended_ > 0) {
      device_->Abort(absl::CancelledError(
          absl::StrCat("rank ", device_->rank(), ": ended in the middle of a step")));
    }
    if (stream_.get() != nullptr) (void)cudaStreamSynchronize(stream_.get());
    // A communicator that was aborted has taken its registrations with it.
    if (device_->handle() == nullptr) {
      registration_.Abandon();
      halves_registration_.Abandon();
    }
    if (received_ != nullptr) (void)cudaFree(received_);
    halves_registration_ = NcclRegistration();
    if (halves_ != nullptr) FreeNcclMemory(halves_);
  }

  absl::Status Open() {
    TY_RETURN_IF_ERROR(stream_.Create());
    for (Step& step : steps_) TY_RETURN_IF_ERROR(step.events.Create(buckets_.size()));
    TY_RETURN_IF_ERROR(settled_.Create());
    TY_RETURN_IF_ERROR(MakeRoom());
    TY_RETURN_IF_ERROR(MakeHalves());
    TY_RETURN_IF_ERROR(ConnectPairs());
    registration_ = NcclRegistration(device_->handle(), options_.memory.reduction.data(),
                                     options_.memory.reduction.size() * sizeof(float));
    return blocks_.Agree();
  }

  absl::Span<const Bucket> buckets() const override { return buckets_; }
  bool is_sharded() const override { return blocks_.is_sharded(); }
  Bucket OwnBlock(size_t bucket) const override {
    if (blocks_.IsForAll(bucket)) return buckets_[bucket];
    return blocks_.BlockOfRank(bucket, device_->rank());
  }

  absl::Status SetPlan(const ExchangePlan& plan, absl::Span<const int> term_slots) override {
    options_.memory.plan = plan;
    options_.memory.term_slots.assign(term_slots.begin(), term_slots.end());
    blocks_.SetPlan(plan, term_slots);
    TY_RETURN_IF_ERROR(MakeRoom());
    return blocks_.Agree();
  }
  void set_timeout(absl::Duration timeout) override {
    device_->set_timeout(timeout);
    host_->set_timeout(timeout);
  }
  void set_tracing(bool traces) override { traces_ = traces; }

  absl::Status Begin(int64_t step, absl::Span<const double> ballot) override {
    TY_CHECK(!is_begun_ && ended_ <= static_cast<size_t>(lag()));
    is_begun_ = true;
    newest_ = (newest_ + 1) % steps_.size();
    Step& begun = newest();
    begun.number = step;
    begun.ballot.assign(ballot.begin(), ballot.end());
    begun.sight = {.begin_uptime = Clock::Real()->Uptime(), .end_uptime = {}, .traces = traces_};
    reduced_ = 0;
    return Mark(begun.events.begun, options_.compute);
  }

  absl::Status Ready(int64_t end) override {
    while (reduced_ < buckets_.size() && buckets_[reduced_].end <= end) {
      TY_RETURN_IF_ERROR(InBucket(reduced_, EnqueueReduce(reduced_)));
      ++reduced_;
    }
    return absl::OkStatus();
  }

  absl::Status Land(size_t bucket) override {
    TY_CHECK(bucket < reduced_);
    return Follow(options_.compute, newest().events.buckets[bucket].summed);
  }

  absl::Status Share(size_t bucket) override {
    if (blocks_.IsForAll(bucket)) return absl::OkStatus();
    const StepEvents::OfBucket& events = newest().events.buckets[bucket];
    TY_RETURN_IF_ERROR(Mark(events.updated, options_.compute));
    TY_RETURN_IF_ERROR(Follow(stream_.get(), events.updated));
    TY_RETURN_IF_ERROR(Mark(events.sending, stream_.get()));
    TY_RETURN_IF_ERROR(InBucket(bucket, EnqueueGather(bucket, options_.memory.parameters)));
    return Mark(events.shared, stream_.get());
  }

  absl::Status End() override {
    TY_CHECK(is_begun_ && reduced_ == buckets_.size());
    Step& ended = newest();
    TY_RETURN_IF_ERROR(Mark(ended.events.done, stream_.get()));
    ended.last = device_->last();
    is_begun_ = false;
    ++ended_;
    return Follow(options_.compute, ended.events.done);
  }

  absl::Status Finish(absl::Span<double> ballots) override {
    TY_CHECK(!is_begun_ && ended_ > 0);
    Step& oldest = Oldest();
    TY_RETURN_IF_ERROR(InStep(oldest, device_->Await(oldest.events.done.get(), oldest.last)));
    oldest.sight.end_uptime = Clock::Real()->Uptime();
    const absl::Status gathered = InStep(oldest, blocks_.GatherBallots(oldest.ballot, ballots));
    if (!gathered.ok()) {
      // The device must not wait for a rank that does not go on.
      device_->Abort(gathered);
      return gathered;
    }
    --ended_;
    TY_ASSIGN_OR_RETURN(stats_, TakeStats(oldest.events, oldest.sight, [this](size_t bucket) {
                          return !blocks_.IsForAll(bucket);
                        }));
    return absl::OkStatus();
  }

  int lag() const override { return options_.finishes_steps ? 0 : kLag; }
  absl::Status Watch(absl::Duration waited) override {
    // A step that has begun may take statistics over all ranks before it ends.
    if (ended_ == 0) {
      return is_begun_ ? InStep(newest(), device_->Watch(waited, device_->last()))
                       : absl::OkStatus();
    }
    const Step& oldest = Oldest();
    return InStep(oldest, device_->Watch(waited, oldest.last));
  }

  const CommStats& stats() const override { return stats_; }

  absl::Status GatherBlocks(absl::Span<float> values) override {
    TY_RETURN_IF_ERROR(Mark(settled_, options_.compute));
    TY_RETURN_IF_ERROR(Follow(stream_.get(), settled_));
    for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      if (buckets_[bucket].begin >= options_.memory.gradient_elements) break;
      TY_RETURN_IF_ERROR(EnqueueGather(bucket, values));
    }
    TY_RETURN_IF_ERROR(Mark(settled_, stream_.get()));
    return device_->Await(settled_.get());
  }

 private:
  // Returns the oldest step that has ended and is not finished.
  Step& Oldest() {
    const size_t later = ended_ - 1 + (is_begun_ ? 1 : 0);
    return steps_[(newest_ + steps_.size() - later) % steps_.size()];
  }
  static absl::Status InStep(const Step& step, const absl::Status& status) {
    return Annotate(status, absl::StrCat("step ", step.number));
  }
  Step& newest() { return steps_[newest_]; }
  const Step& newest() const { return steps_[newest_]; }
  absl::Status InBucket(size_t bucket, const absl::Status& status) const {
    return Annotate(status, absl::StrCat("step ", newest().number, ": bucket ", bucket));
  }

  size_t ranks() const { return static_cast<size_t>(device_->world_size()); }
  bool IsAllReduced(size_t bucket) const {
    const std::vector<int>& terms = options_.memory.plan.terms;
    const bool is_single =
        std::all_of(terms.begin(), terms.end(), [](int count) { return count == 1; });
    return is_single && blocks_.IsForAll(bucket) && !options_.keeps_order;
  }
  float* Memory(int slot) const {
    return slot < 0 ? options_.memory.reduction.data()
                    : options_.memory.slots[static_cast<size_t>(slot)].data();
  }

  // Connects all pairs now. NCCL connects two ranks when they first talk, which would hold up a
  // step.
  absl::Status ConnectPairs() {
    if (ranks() == 1) return absl::OkStatus();
    float* memory = nullptr;
    TY_RETURN_IF_ERROR(
        FromCuda(cudaMalloc(reinterpret_cast<void**>(&memory), 2 * ranks() * sizeof(float)),
                 "connecting ranks"));
    std::vector<NcclCommunicator::Message> sends, receives;
    for (int peer = 0; peer < device_->world_size(); ++peer) {
      if (peer == device_->rank()) continue;
      sends.push_back({peer, memory + peer, 1});
      receives.push_back({peer, memory + ranks() + peer, 1});
    }
    absl::Status status = device_->EnqueueMessages("connect", sends, receives, stream_.get());
    if (status.ok()) status = Mark(settled_, stream_.get());
    if (status.ok()) status = device_->Await(settled_.get());
    (void)cudaFree(memory);
    return status;
  }

  // Statistics, the loss and counts lie behind the gradients, and keep their digits.
  bool IsInBf16(const Bucket& bucket) const {
    return options_.to_bf16 != nullptr && bucket.begin < options_.memory.gradient_elements;
  }

  // Allocates room for the largest bucket that travels in bfloat16. One is enough, since buckets
  // follow each other on the stream.
  absl::Status MakeHalves() {
    int64_t largest = 0;
    for (const Bucket& bucket : buckets_) {
      if (IsInBf16(bucket)) largest = std::max(largest, bucket.size());
    }
    if (largest == 0) return absl::OkStatus();
    const auto bytes = static_cast<size_t>(largest * kBf16Bytes);
    TY_ASSIGN_OR_RETURN(halves_, AllocateNcclMemory(bytes));
    halves_registration_ = NcclRegistration(device_->handle(), halves_, bytes);
    return absl::OkStatus();
  }

  // Allocates room for the other ranks' terms of the own block in the largest bucket.
  absl::Status MakeRoom() {
    int64_t largest = 0;
    for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      if (IsAllReduced(bucket)) continue;
      largest = std::max(largest, blocks_.BlockOfRank(bucket, device_->rank()).size());
    }
    int64_t others = 0;
    const std::vector<int>& terms = options_.memory.plan.terms;
    for (size_t of = 0; of < terms.size(); ++of) {
      if (static_cast<int>(of) != device_->rank()) others += terms[of];
    }
    if (largest * others <= room_) return absl::OkStatus();
    // The last step may still use the present room.
    TY_RETURN_IF_ERROR(
        FromCuda(cudaStreamSynchronize(stream_.get()), "room for the terms of others"));
    if (received_ != nullptr) (void)cudaFree(std::exchange(received_, nullptr));
    room_ = 0;
    const auto bytes = static_cast<size_t>(largest * others) * sizeof(float);
    TY_RETURN_IF_ERROR(FromCuda(cudaMalloc(reinterpret_cast<void**>(&received_), bytes),
                                "room for the terms of others"));
    room_ = largest * others;
    return absl::OkStatus();
  }

  absl::Status EnqueueReduce(size_t bucket) {
    const Bucket& all = buckets_[bucket];
    const StepEvents::OfBucket& events = newest().events.buckets[bucket];
    TY_RETURN_IF_ERROR(Mark(events.ready, options_.compute));
    TY_RETURN_IF_ERROR(Follow(stream_.get(), events.ready));
    TY_RETURN_IF_ERROR(Mark(events.begun, stream_.get()));
    if (IsAllReduced(bucket)) {
      TY_RETURN_IF_ERROR(EnqueueAllReduce(all));
    } else {
      TY_RETURN_IF_ERROR(EnqueueTerms(bucket));
      TY_RETURN_IF_ERROR(EnqueueSum(blocks_.BlockOfRank(bucket, device_->rank())));
      if (blocks_.IsForAll(bucket)) {
        TY_RETURN_IF_ERROR(EnqueueGather(bucket, options_.memory.reduction));
      }
    }
    return Mark(events.summed, stream_.get());
  }

  absl::Status EnqueueAllReduce(const Bucket& bucket) {
    float* const sums = options_.memory.reduction.data() + bucket.begin;
    const int64_t size = bucket.size();
    const bool in_bf16 = IsInBf16(bucket);
    const int64_t element = in_bf16 ? kBf16Bytes : int64_t{sizeof(float)};
    newest().sight.bytes_sent +=
        2 * size * element * (device_->world_size() - 1) / device_->world_size();
    if (!in_bf16) {
      return device_->EnqueueAllReduce({sums, static_cast<size_t>(size)}, stream_.get());
    }
    TY_RETURN_IF_ERROR(options_.to_bf16(sums, halves_, size, stream_.get()));
    TY_RETURN_IF_ERROR(device_->EnqueueAllReduceBf16(halves_, size, stream_.get()));
    return options_.from_bf16(halves_, sums, size, stream_.get());
  }

  // Sends every rank's terms of a block to its owner.
  absl::Status EnqueueTerms(size_t bucket) {
    const int64_t own = blocks_.BlockOfRank(bucket, device_->rank()).size();
    std::vector<NcclCommunicator::Message> sends, receives;
    int64_t place = 0;
    for (size_t of = 0; of < ranks(); ++of) {
      const auto peer = static_cast<int>(of);
      if (peer == device_->rank()) continue;
      const Bucket block = blocks_.BlockOfRank(bucket, peer);
      for (const int slot : options_.memory.term_slots) {
        sends.push_back({peer, Memory(slot) + block.begin, block.size()});
        newest().sight.bytes_sent += block.size() * int64_t{sizeof(float)};
      }
      for (int term = 0; term < options_.memory.plan.terms[of]; ++term) {
        receives.push_back({peer, received_ + place, own});
        place += own;
      }
    }
    return device_->EnqueueMessages("reduce_scatter", sends, receives, stream_.get());
  }

  // Sums into the right operand, which is not needed any more: a term that was received, or the
  // block of an own term.
  absl::Status EnqueueSum(const Bucket& block) {
    std::vector<float*> terms;
    float* received = received_;
    for (size_t of = 0; of < ranks(); ++of) {
      for (int term = 0; term < options_.memory.plan.terms[of]; ++term) {
        if (static_cast<int>(of) == device_->rank()) {
          terms.push_back(Memory(options_.memory.term_slots[static_cast<size_t>(term)]) +
                          block.begin);
        } else {
          terms.push_back(received);
          received += block.size();
        }
      }
    }
    std::vector<float*> stack;
    size_t next = 0;
    for (const SumOp op : options_.memory.plan.sum.ops) {
      if (op == SumOp::kPush) {
        stack.push_back(terms[next++]);
        continue;
      }
      float* const right = stack.back();
      stack.pop_back();
      TY_RETURN_IF_ERROR(options_.add_left(stack.back(), right, block.size(), stream_.get()));
      stack.back() = right;
    }
    float* const target = options_.memory.reduction.data() + block.begin;
    if (stack.back() == target || block.size() == 0) return absl::OkStatus();
    return FromCuda(
        cudaMemcpyAsync(target, stack.back(), static_cast<size_t>(block.size()) * sizeof(float),
                        cudaMemcpyDeviceToDevice, stream_.get()),
        "sum of a bucket");
  }

  // Sends each rank's block of the bucket to all.
  absl::Status EnqueueGather(size_t bucket, absl::Span<float> values) {
    const Bucket own = blocks_.BlockOfRank(bucket, device_->rank());
    std::vector<NcclCommunicator::Message> sends, receives;
    for (size_t of = 0; of < ranks(); ++of) {
      const auto peer = static_cast<int>(of);
      if (peer == device_->rank()) continue;
      const Bucket block = blocks_.BlockOfRank(bucket, peer);
      sends.push_back({peer, values.data() + own.begin, own.size()});
      receives.push_back({peer, values.data() + block.begin, block.size()});
      newest().sight.bytes_sent += own.size() * int64_t{sizeof(float)};
    }
    return device_->EnqueueMessages("all_gather", sends, receives, stream_.get());
  }

  const std::shared_ptr<NcclCommunicator> device_;
  const std::unique_ptr<Communicator> host_;
  NcclExchangeOptions options_;
  BlockExchange blocks_;
  const absl::Span<const Bucket> buckets_;
  NcclRegistration registration_;  // of the reduction
  OwnedStream stream_;
  std::array<Step, kLag + 1> steps_;
  size_t newest_ = 0;
  bool is_begun_ = false;  // the newest step has begun and not ended
  size_t ended_ = 0;       // of the newest steps, how many have ended and are not finished
  OwnedEvent settled_;     // of work between steps
  float* received_ = nullptr;
  void* halves_ = nullptr;
  NcclRegistration halves_registration_;
  int64_t room_ = 0;
  size_t reduced_ = 0;
  bool traces_ = false;
  CommStats stats_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GradientExchange>> MakeNcclExchange(
    std::shared_ptr<NcclCommunicator> device, std::unique_ptr<Communicator> host,
    NcclExchangeOptions options) {
  auto exchange =
      std::make_unique<NcclExchange>(std::move(device), std::move(host), std::move(options));
  TY_RETURN_IF_ERROR(exchange->Open());
  return exchange;
}

}  // namespace trainyard::parallel
