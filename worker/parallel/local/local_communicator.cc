#include "worker/parallel/local/local_communicator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "worker/parallel/collective.h"

namespace trainyard::parallel {

// What one rank brings to a collective.
struct Contribution {
  Collective collective;
  size_t size = 0;
  int root = -1;
  const float* input = nullptr;
  float* output = nullptr;
};

class LocalGroup {
 public:
  explicit LocalGroup(int world_size)
      : world_size_(world_size),
        contributions_(static_cast<size_t>(world_size)),
        left_(static_cast<size_t>(world_size), false) {}

  int world_size() const { return world_size_; }

  const Contribution& at(int rank) const { return contributions_[static_cast<size_t>(rank)]; }

  // Waits until all ranks have brought what they have; then at() of every rank may be read. An
  // error breaks the group for all.
  absl::Status Enter(const Contribution& mine, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    contributions_[static_cast<size_t>(mine.collective.rank)] = mine;
    TY_RETURN_IF_ERROR(Arrive(mine.collective, timeout));
    for (const Contribution& other : contributions_) {
      if (other.collective.operation == mine.collective.operation && other.size == mine.size &&
          other.root == mine.root) {
        continue;
      }
      broken_ = true;
      all_arrived_.SignalAll();
      return CollectiveMismatch(
          mine.collective,
          absl::StrCat("brought ", mine.size, " elements, while rank ", other.collective.rank,
                       " called ", other.collective.operation, " with ", other.size));
    }
    return absl::OkStatus();
  }

  // Waits until all ranks are done with the others' memory.
  absl::Status Leave(const Collective& collective, absl::Duration timeout)
      ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return Arrive(collective, timeout);
  }

  void Lose(int rank) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    left_[static_cast<size_t>(rank)] = true;
    all_arrived_.SignalAll();
  }

 private:
  absl::Status Arrive(const Collective& collective, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (broken_) return PeerLost(collective, -1, "an earlier collective failed");
    const int64_t turn = turn_;
    if (++arrived_ == world_size_) {
      arrived_ = 0;
      ++turn_;
      all_arrived_.SignalAll();
      return absl::OkStatus();
    }
    const absl::Duration deadline = Clock::Real()->Uptime() + timeout;
    while (turn_ == turn) {
      const auto lost = std::find(left_.begin(), left_.end(), true);
      if (broken_ || lost != left_.end()) {
        broken_ = true;
        all_arrived_.SignalAll();
        const int peer = lost == left_.end() ? -1 : static_cast<int>(lost - left_.begin());
        return PeerLost(collective, peer, "its communicator is gone");
      }
      if (all_arrived_.WaitWithTimeout(&mutex_, deadline - Clock::Real()->Uptime()) &&
          turn_ == turn) {
        broken_ = true;
        all_arrived_.SignalAll();
        return CollectiveTimedOut(collective, -1, timeout);
      }
    }
    return absl::OkStatus();
  }

  const int world_size_;
  // Written under the mutex before the turn ends, read without it until the next one.
  std::vector<Contribution> contributions_;

  absl::Mutex mutex_;
  absl::CondVar all_arrived_;
  std::vector<bool> left_ ABSL_GUARDED_BY(mutex_);
  int arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t turn_ ABSL_GUARDED_BY(mutex_) = 0;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
};

namespace {

constexpr absl::Duration kDefaultTimeout = absl::Seconds(60);

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  ~LocalCommunicator() override { group_->Lose(rank_); }

  int rank() const override { return rank_; }
  int world_size() const override { return group_->world_size(); }
  void set_timeout(absl::Duration timeout) override { timeout_ = timeout; }

  // Each rank sums one block over all ranks and writes it to all of them: no two ranks touch the
  // same element.
  absl::Status AllReduce(absl::Span<float> values) override {
    const Contribution mine{Next("all_reduce"), values.size(), -1, values.data(), values.data()};
    return Run(mine, [this, &mine] {
      const Block block = BlockOf(mine.size, rank_, world_size());
      SumBlock(block);
      for (int rank = 0; rank < world_size(); ++rank) {
        std::copy(sum_.begin(), sum_.end(), group_->at(rank).output + block.begin);
      }
    });
  }

  absl::Status ReduceScatter(absl::Span<const float> values, absl::Span<float> block) override {
    const Collective collective = Next("reduce_scatter");
    const auto ranks = static_cast<size_t>(world_size());
    if (values.size() != block.size() * ranks) return WrongSizes(collective, values, block);
    const Contribution mine{collective, values.size(), -1, values.data(), block.data()};
    return Run(mine, [this, &block] {
      const size_t begin = static_cast<size_t>(rank_) * block.size();
      SumBlock({begin, begin + block.size()});
      std::copy(sum_.begin(), sum_.end(), block.begin());
    });
  }

  absl::Status AllGather(absl::Span<const float> block, absl::Span<float> values) override {
    const Collective collective = Next("all_gather");
    const auto ranks = static_cast<size_t>(world_size());
    if (values.size() != block.size() * ranks) return WrongSizes(collective, values, block);
    const Contribution mine{collective, values.size(), -1, block.data(), values.data()};
    return Run(mine, [this, &block] {
      for (int rank = 0; rank < world_size(); ++rank) {
        std::copy(block.begin(), block.end(),
                  group_->at(rank).output + static_cast<size_t>(rank_) * block.size());
      }
    });
  }

  absl::Status Broadcast(absl::Span<float> values, int root) override {
    const Contribution mine{Next("broadcast"), values.size(), root, values.data(), values.data()};
    if (root < 0 || root >= world_size()) {
      return CollectiveMismatch(mine.collective, absl::StrCat("there is no rank ", root));
    }
    return Run(mine, [this, &values, root] {
      const float* source = group_->at(root).input;
      if (rank_ != root) std::copy(source, source + values.size(), values.begin());
    });
  }

  absl::Status Barrier() override {
    return Run({Next("barrier"), 0, -1, nullptr, nullptr}, [] {});
  }

 private:
  Collective Next(absl::string_view operation) { return {rank_, operation, ++sequence_}; }

  static absl::Status WrongSizes(const Collective& collective, absl::Span<const float> values,
                                 absl::Span<const float> block) {
    return CollectiveMismatch(
        collective, absl::StrCat(values.size(), " elements do not fit blocks of ", block.size()));
  }

  // The sum of `block` over the ranks, in rank order, in sum_.
  void SumBlock(const Block& block) {
    const float* first = group_->at(0).input;
    sum_.assign(first + block.begin, first + block.end);
    for (int rank = 1; rank < world_size(); ++rank) {
      AddTo(sum_.data(), group_->at(rank).input + block.begin, block.size());
    }
  }

  template <typename Work>
  absl::Status Run(const Contribution& mine, Work work) {
    if (world_size() == 1) {
      if (mine.output != mine.input) std::copy(mine.input, mine.input + mine.size, mine.output);
      return absl::OkStatus();
    }
    TY_RETURN_IF_ERROR(group_->Enter(mine, timeout_));
    work();
    return group_->Leave(mine.collective, timeout_);
  }

  const std::shared_ptr<LocalGroup> group_;
  const int rank_;
  absl::Duration timeout_ = kDefaultTimeout;
  int64_t sequence_ = 0;
  std::vector<float> sum_;
};

}  // namespace

std::shared_ptr<LocalGroup> MakeLocalGroup(int world_size) {
  TY_CHECK(world_size >= 1);
  return std::make_shared<LocalGroup>(world_size);
}

std::unique_ptr<Communicator> MakeLocalCommunicator(std::shared_ptr<LocalGroup> group, int rank) {
  TY_CHECK(rank >= 0 && rank < group->world_size());
  return std::make_unique<LocalCommunicator>(std::move(group), rank);
}

}  // namespace trainyard::parallel
