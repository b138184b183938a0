// Implements the thread that runs a step's collectives, and how it and the training wait for each
// other.
#include "worker/parallel/wire_exchange.h"

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"

namespace trainyard::parallel {
namespace {

// Stands for the end of the whole step in a wait.
constexpr int64_t kWholeStep = -1;

class WireExchange : public GradientExchange {
 public:
  WireExchange(std::unique_ptr<Communicator> communicator, WireExchangeOptions options)
      : communicator_(std::move(communicator)),
        blocks_(*communicator_, std::move(options)),
        buckets_(blocks_.buckets()),
        shared_buckets_(blocks_.is_sharded() ? CountShared() : 0),
        thread_([this] { Work(); }) {}

  ~WireExchange() override {
    {
      absl::MutexLock lock(&mutex_);
      is_stopping_ = true;
    }
    thread_.join();
  }

  absl::Span<const Bucket> buckets() const override { return buckets_; }
  bool is_sharded() const override { return blocks_.is_sharded(); }
  Bucket OwnBlock(size_t bucket) const override {
    if (blocks_.IsForAll(bucket)) return buckets_[bucket];
    return blocks_.BlockOfRank(bucket, communicator_->rank());
  }

  absl::Status SetPlan(const ExchangePlan& plan, absl::Span<const int> term_slots) override {
    absl::MutexLock lock(&mutex_);
    TY_RETURN_IF_ERROR(broken_);
    TY_CHECK(job_ == Job::kNone);
    // The thread looks at this in its next step, which begins under the mutex.
    blocks_.SetPlan(plan, term_slots);
    is_agreed_ = false;
    return absl::OkStatus();
  }

  void set_timeout(absl::Duration timeout) override {
    absl::MutexLock lock(&mutex_);
    timeout_ = timeout;
  }
  void set_tracing(bool traces) override {
    absl::MutexLock lock(&mutex_);
    is_traced_ = traces;
  }

  absl::Status Begin(int64_t step, absl::Span<const double> ballot) override {
    absl::MutexLock lock(&mutex_);
    TY_RETURN_IF_ERROR(broken_);
    TY_CHECK(job_ == Job::kNone);
    job_ = Job::kStep;
    step_ = step;
    ballot_.assign(ballot.begin(), ballot.end());
    ballots_.resize(ballot.size() * static_cast<size_t>(communicator_->world_size()));
    ready_end_ = 0;
    landed_ = shared_ = 0;
    running_ = {};
    return absl::OkStatus();
  }

  absl::Status Ready(int64_t end) override {
    absl::MutexLock lock(&mutex_);
    TY_RETURN_IF_ERROR(broken_);
    // A bucket that is known to be ready may be announced again, even after the thread is done.
    if (end <= ready_end_) return absl::OkStatus();
    TY_CHECK(job_ == Job::kStep);
    ready_end_ = end;
    return absl::OkStatus();
  }

  absl::Status Land(size_t bucket) override {
    absl::MutexLock lock(&mutex_);
    TY_CHECK(bucket < buckets_.size());
    wanted_ = bucket;
    return Wait(&WireExchange::HasLanded, static_cast<int64_t>(bucket));
  }

  absl::Status Share(size_t bucket) override {
    absl::MutexLock lock(&mutex_);
    TY_RETURN_IF_ERROR(broken_);
    if (bucket < shared_buckets_) {
      TY_CHECK(bucket == shared_);
      ++shared_;
    }
    return absl::OkStatus();
  }

  absl::Status Finish(absl::Span<double> ballots) override {
    absl::MutexLock lock(&mutex_);
    TY_CHECK(!broken_.ok() || (job_ == Job::kStep || job_ == Job::kNone));
    TY_RETURN_IF_ERROR(Wait(&WireExchange::IsIdle, kWholeStep));
    TY_CHECK(ballots.size() == ballots_.size());
    std::copy(ballots_.begin(), ballots_.end(), ballots.begin());
    // Only the thread waits in some of them.
    running_.exposed = std::min(running_.exposed, running_.total);
    stats_ = std::move(running_);
    return absl::OkStatus();
  }

  const CommStats& stats() const override { return stats_; }

  absl::Status GatherBlocks(absl::Span<float> values) override {
    absl::MutexLock lock(&mutex_);
    TY_RETURN_IF_ERROR(broken_);
    if (!blocks_.is_sharded()) return absl::OkStatus();
    TY_CHECK(job_ == Job::kNone);
    job_ = Job::kGather;
    gathered_ = values;
    mutex_.Await(absl::Condition(this, &WireExchange::IsIdle));
    return broken_;
  }

 private:
  // The kinds of work for the thread.
  enum class Job { kNone, kStep, kGather };

  size_t CountShared() const {
    size_t count = 0;
    while (count < buckets_.size() && !blocks_.IsForAll(count)) ++count;
    return count;
  }

  // These conditions are checked with the mutex held.
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return is_stopping_ || job_ != Job::kNone;
  }
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return job_ == Job::kNone || !broken_.ok();
  }
  bool HasLanded() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return landed_ > wanted_ || !broken_.ok();
  }
  bool IsReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return is_stopping_ || ready_end_ >= buckets_[at_].end;
  }
  bool IsShared() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return is_stopping_ || shared_ > at_;
  }

  // The training waits here until the condition holds, or the thread has failed.
  absl::Status Wait(bool (WireExchange::*condition)() const, int64_t bucket)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if ((this->*condition)()) return broken_;
    const absl::Duration begin = Clock::Real()->Uptime();
    mutex_.Await(absl::Condition(this, condition));
    const absl::Duration end = Clock::Real()->Uptime();
    running_.exposed += end - begin;
    if (is_traced_) {
      running_.events.push_back({CommEvent::Kind::kWait, bucket, begin, end, /*bytes=*/0});
    }
    return broken_;
  }

  // The body of the thread.
  void Work() ABSL_LOCKS_EXCLUDED(mutex_) {
    while (true) {
      Job job = Job::kNone;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &WireExchange::HasWork));
        if (is_stopping_) return;
        job = job_;
      }
      const absl::Status status = job == Job::kStep ? RunStep() : RunGather();
      absl::MutexLock lock(&mutex_);
      if (status.ok()) {
        job_ = Job::kNone;
        continue;
      }
      if (broken_.ok()) broken_ = status;
      return;
    }
  }

  absl::Status RunStep() ABSL_LOCKS_EXCLUDED(mutex_) {
    TY_RETURN_IF_ERROR(RunBallots());
    for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      TY_RETURN_IF_ERROR(Await(&WireExchange::IsReady, bucket));
      TY_RETURN_IF_ERROR(
          Run(CommEvent::Kind::kReduce, bucket, [&] { return blocks_.Reduce(bucket); }));
      absl::MutexLock lock(&mutex_);
      landed_ = bucket + 1;
    }
    const absl::Span<float> parameters = blocks_.parameters();
    for (size_t bucket = 0; bucket < shared_buckets_; ++bucket) {
      TY_RETURN_IF_ERROR(Await(&WireExchange::IsShared, bucket));
      TY_RETURN_IF_ERROR(Run(CommEvent::Kind::kShare, bucket,
                             [&] { return blocks_.GatherBucket(bucket, parameters); }));
    }
    return absl::OkStatus();
  }

  absl::Status RunBallots() ABSL_LOCKS_EXCLUDED(mutex_) {
    bool must_agree = false;
    {
      absl::MutexLock lock(&mutex_);
      must_agree = !std::exchange(is_agreed_, true);
    }
    // Nobody else touches the ballots before the step is over.
    return Run(std::nullopt, 0, [&] {
      if (must_agree) TY_RETURN_IF_ERROR(blocks_.Agree());
      return blocks_.GatherBallots(ballot_, absl::MakeSpan(ballots_));
    });
  }

  absl::Status RunGather() ABSL_LOCKS_EXCLUDED(mutex_) {
    for (size_t bucket = 0; bucket < shared_buckets_; ++bucket) {
      ApplyTimeout();
      TY_RETURN_IF_ERROR(Annotate(blocks_.GatherBucket(bucket, gathered_),
                                  absl::StrCat("blocks of bucket ", bucket)));
    }
    return absl::OkStatus();
  }

  // The thread waits here for the training. Returns CANCELLED if the training destroys the
  // exchange.
  absl::Status Await(bool (WireExchange::*condition)() const, size_t bucket)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    at_ = bucket;
    mutex_.Await(absl::Condition(this, condition));
    return is_stopping_ ? absl::CancelledError("the exchange was let go") : absl::OkStatus();
  }

  // Runs collectives, for a bucket if there is a kind, and records their time and bytes.
  template <typename Collectives>
  absl::Status Run(std::optional<CommEvent::Kind> kind, size_t bucket, Collectives collectives)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    ApplyTimeout();
    const absl::Duration begin = Clock::Real()->Uptime();
    const absl::Status status = collectives();
    const absl::Duration end = Clock::Real()->Uptime();
    absl::MutexLock lock(&mutex_);
    if (!status.ok()) {
      std::string where = absl::StrCat("step ", step_);
      if (kind == CommEvent::Kind::kReduce) absl::StrAppend(&where, ", bucket ", bucket);
      if (kind == CommEvent::Kind::kShare) {
        absl::StrAppend(&where, ", parameters of bucket ", bucket);
      }
      return Annotate(status, where);
    }
    const int64_t bytes = blocks_.TakeBytesSent();
    if (communicator_->world_size() > 1) running_.total += end - begin;
    running_.bytes_sent += bytes;
    if (is_traced_ && kind.has_value()) {
      running_.events.push_back({*kind, static_cast<int64_t>(bucket), begin, end, bytes});
    }
    return absl::OkStatus();
  }

  void ApplyTimeout() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (timeout_.has_value()) communicator_->set_timeout(*timeout_);
  }

  const std::unique_ptr<Communicator> communicator_;
  BlockExchange blocks_;  // used by the thread while there is a job
  const absl::Span<const Bucket> buckets_;
  // The first buckets, of which each rank updates a block.
  const size_t shared_buckets_;
  CommStats stats_;  // read by the training

  // Written by Begin and GatherBlocks, and by the thread during their job.
  std::vector<double> ballot_;
  std::vector<double> ballots_;
  absl::Span<float> gathered_;

  absl::Mutex mutex_;
  Job job_ ABSL_GUARDED_BY(mutex_) = Job::kNone;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_agreed_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_traced_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Duration> timeout_ ABSL_GUARDED_BY(mutex_);
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t ready_end_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t shared_ ABSL_GUARDED_BY(mutex_) = 0;  // buckets that the training has shared
  size_t landed_ ABSL_GUARDED_BY(mutex_) = 0;  // buckets whose sums are there
  size_t wanted_ ABSL_GUARDED_BY(mutex_) = 0;  // the bucket that the training waits for
  size_t at_ ABSL_GUARDED_BY(mutex_) = 0;      // the bucket that the thread waits for
  CommStats running_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;  // last, so that it ends first
};

}  // namespace

std::unique_ptr<GradientExchange> MakeWireExchange(std::unique_ptr<Communicator> communicator,
                                                   WireExchangeOptions options) {
  return std::make_unique<WireExchange>(std::move(communicator), std::move(options));
}

}  // namespace trainyard::parallel
