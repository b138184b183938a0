// Implements the stream, events and messages of a step over NCCL.
#include "worker/parallel/nccl/nccl_exchange.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "worker/parallel/nccl/device_handles.h"

namespace trainyard::parallel {
namespace {

// The events of a bucket. Times are taken between them.
struct BucketEvents {
  OwnedEvent ready;    // backward has produced it
  OwnedEvent begun;    // its collectives may begin
  OwnedEvent summed;   // the reduction holds its sum
  OwnedEvent updated;  // this rank has updated its block
  OwnedEvent sending;  // its parameters leave
  OwnedEvent shared;   // all parameters of the bucket are here
};

class NcclExchange final : public GradientExchange {
 public:
  NcclExchange(std::unique_ptr<NcclCommunicator> device, std::unique_ptr<Communicator> host,
               NcclExchangeOptions options)
      : device_(std::move(device)),
        host_(std::move(host)),
        options_(std::move(options)),
        blocks_(*host_, options_.memory),
        buckets_(blocks_.buckets()) {}

  ~NcclExchange() override {
    // Enqueued work uses memory of this object. If the gang is broken, NCCL was aborted and the
    // stream ends.
    if (stream_.get() != nullptr) (void)cudaStreamSynchronize(stream_.get());
    if (received_ != nullptr) (void)cudaFree(received_);
  }

  absl::Status Open() {
    TY_RETURN_IF_ERROR(stream_.Create());
    events_.resize(buckets_.size());
    for (BucketEvents& events : events_) {
      TY_RETURN_IF_ERROR(events.ready.Create(EventTimes::kTaken));
      TY_RETURN_IF_ERROR(events.begun.Create(EventTimes::kTaken));
      TY_RETURN_IF_ERROR(events.summed.Create(EventTimes::kTaken));
      TY_RETURN_IF_ERROR(events.updated.Create(EventTimes::kTaken));
      TY_RETURN_IF_ERROR(events.sending.Create(EventTimes::kTaken));
      TY_RETURN_IF_ERROR(events.shared.Create(EventTimes::kTaken));
    }
    TY_RETURN_IF_ERROR(done_.Create(EventTimes::kTaken));
    TY_RETURN_IF_ERROR(MakeRoom());
    TY_RETURN_IF_ERROR(ConnectPairs());
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
    step_ = step;
    ballot_.assign(ballot.begin(), ballot.end());
    reduced_ = 0;
    bytes_sent_ = 0;
    begin_uptime_ = Clock::Real()->Uptime();
    return absl::OkStatus();
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
    return Follow(options_.compute, events_[bucket].summed);
  }

  absl::Status Share(size_t bucket) override {
    if (blocks_.IsForAll(bucket)) return absl::OkStatus();
    const BucketEvents& events = events_[bucket];
    TY_RETURN_IF_ERROR(Mark(events.updated, options_.compute));
    TY_RETURN_IF_ERROR(Follow(stream_.get(), events.updated));
    TY_RETURN_IF_ERROR(Mark(events.sending, stream_.get()));
    TY_RETURN_IF_ERROR(InBucket(bucket, EnqueueGather(bucket, options_.memory.parameters)));
    return Mark(events.shared, stream_.get());
  }

  absl::Status Finish(absl::Span<double> ballots) override {
    TY_CHECK(reduced_ == buckets_.size());
    TY_RETURN_IF_ERROR(Mark(done_, stream_.get()));
    TY_RETURN_IF_ERROR(Follow(options_.compute, done_));
    TY_RETURN_IF_ERROR(InStep(device_->Await(done_.get())));
    TY_RETURN_IF_ERROR(InStep(blocks_.GatherBallots(ballot_, ballots)));
    return TakeTimes();
  }

  const CommStats& stats() const override { return stats_; }

  absl::Status GatherBlocks(absl::Span<float> values) override {
    TY_RETURN_IF_ERROR(Mark(done_, options_.compute));
    TY_RETURN_IF_ERROR(Follow(stream_.get(), done_));
    for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      if (buckets_[bucket].begin >= options_.memory.gradient_elements) break;
      TY_RETURN_IF_ERROR(EnqueueGather(bucket, values));
    }
    TY_RETURN_IF_ERROR(Mark(done_, stream_.get()));
    return device_->Await(done_.get());
  }

 private:
  absl::Status InStep(const absl::Status& status) const {
    return Annotate(status, absl::StrCat("step ", step_));
  }
  absl::Status InBucket(size_t bucket, const absl::Status& status) const {
    return Annotate(status, absl::StrCat("step ", step_, ": bucket ", bucket));
  }
  static absl::Status Mark(const OwnedEvent& event, cudaStream_t stream) {
    return FromCuda(cudaEventRecord(event.get(), stream), "marking a bucket");
  }
  static absl::Status Follow(cudaStream_t stream, const OwnedEvent& event) {
    return FromCuda(cudaStreamWaitEvent(stream, event.get(), 0), "waiting for a bucket");
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
    if (status.ok()) status = Mark(done_, stream_.get());
    if (status.ok()) status = device_->Await(done_.get());
    (void)cudaFree(memory);
    return status;
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
    const BucketEvents& events = events_[bucket];
    TY_RETURN_IF_ERROR(Mark(events.ready, options_.compute));
    TY_RETURN_IF_ERROR(Follow(stream_.get(), events.ready));
    TY_RETURN_IF_ERROR(Mark(events.begun, stream_.get()));
    if (IsAllReduced(bucket)) {
      const auto size = static_cast<size_t>(all.size());
      TY_RETURN_IF_ERROR(device_->EnqueueAllReduce(
          {options_.memory.reduction.data() + all.begin, size}, stream_.get()));
      bytes_sent_ += 2 * all.size() * int64_t{sizeof(float)} * static_cast<int64_t>(ranks() - 1) /
                     static_cast<int64_t>(ranks());
    } else {
      TY_RETURN_IF_ERROR(EnqueueTerms(bucket));
      TY_RETURN_IF_ERROR(EnqueueSum(blocks_.BlockOfRank(bucket, device_->rank())));
      if (blocks_.IsForAll(bucket)) {
        TY_RETURN_IF_ERROR(EnqueueGather(bucket, options_.memory.reduction));
      }
    }
    return Mark(events.summed, stream_.get());
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
        bytes_sent_ += block.size() * int64_t{sizeof(float)};
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
      bytes_sent_ += own.size() * int64_t{sizeof(float)};
    }
    return device_->EnqueueMessages("all_gather", sends, receives, stream_.get());
  }

  static absl::StatusOr<absl::Duration> Between(const OwnedEvent& from, const OwnedEvent& to) {
    float milliseconds = 0;
    TY_RETURN_IF_ERROR(FromCuda(cudaEventElapsedTime(&milliseconds, from.get(), to.get()),
                                "times of a step's communication"));
    return std::max(absl::ZeroDuration(), absl::Milliseconds(static_cast<double>(milliseconds)));
  }

  // Adds the time on the device from `from` to `to` to `stats`.
  absl::Status AddEvent(CommEvent::Kind kind, size_t bucket, const OwnedEvent& from,
                        const OwnedEvent& to, CommStats& stats) {
    TY_ASSIGN_OR_RETURN(const absl::Duration took, Between(from, to));
    stats.total += took;
    if (!traces_) return absl::OkStatus();
    TY_ASSIGN_OR_RETURN(const absl::Duration before, Between(to, done_));
    // The host saw the end of everything a moment ago.
    const absl::Duration end = std::max(begin_uptime_, end_uptime_ - before);
    stats.events.push_back({.kind = kind,
                            .bucket = static_cast<int64_t>(bucket),
                            .begin = std::max(begin_uptime_, end - took),
                            .end = end,
                            .bytes = 0});
    return absl::OkStatus();
  }

  // Reads the times of a step, once the device has done all of its communication.
  absl::Status TakeTimes() {
    CommStats stats;
    stats.bytes_sent = bytes_sent_;
    end_uptime_ = Clock::Real()->Uptime();
    for (size_t i = 0; i < buckets_.size(); ++i) {
      TY_RETURN_IF_ERROR(
          AddEvent(CommEvent::Kind::kReduce, i, events_[i].begun, events_[i].summed, stats));
    }
    for (size_t i = 0; i < buckets_.size(); ++i) {
      if (blocks_.IsForAll(i)) continue;
      TY_RETURN_IF_ERROR(
          AddEvent(CommEvent::Kind::kShare, i, events_[i].sending, events_[i].shared, stats));
    }
    if (!buckets_.empty()) {
      // Nothing hides what comes after the end of backward, which made the last bucket ready.
      TY_ASSIGN_OR_RETURN(const absl::Duration exposed, Between(events_.back().ready, done_));
      stats.exposed = std::min(stats.total, exposed);
    }
    stats_ = std::move(stats);
    return absl::OkStatus();
  }

  const std::unique_ptr<NcclCommunicator> device_;
  const std::unique_ptr<Communicator> host_;
  NcclExchangeOptions options_;
  BlockExchange blocks_;
  const absl::Span<const Bucket> buckets_;
  OwnedStream stream_;
  std::vector<BucketEvents> events_;
  OwnedEvent done_;
  float* received_ = nullptr;
  int64_t room_ = 0;
  std::vector<double> ballot_;
  int64_t step_ = 0;
  size_t reduced_ = 0;
  int64_t bytes_sent_ = 0;
  bool traces_ = false;
  absl::Duration begin_uptime_;
  absl::Duration end_uptime_;
  CommStats stats_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GradientExchange>> MakeNcclExchange(
    std::unique_ptr<NcclCommunicator> device, std::unique_ptr<Communicator> host,
    NcclExchangeOptions options) {
  auto exchange =
      std::make_unique<NcclExchange>(std::move(device), std::move(host), std::move(options));
  TY_RETURN_IF_ERROR(exchange->Open());
  return exchange;
}

}  // namespace trainyard::parallel
