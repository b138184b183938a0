// Implements collectives between threads, which read each other's memory while all of them wait.
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

// The contribution of one rank to a collective.
struct Contribution {
  Collective collective;
  size_t size = 0;
  int root = -1;
  const float* input = nullptr;
  float* output = nullptr;
  // By peer; only for all_to_all.
  absl::Span<const absl::Span<const float>> send = {};
  absl::Span<const absl::Span<float>> receive = {};
};

class LocalGroup {
 public:
  explicit LocalGroup(int world_size)
      : world_size_(world_size),
        contributions_(static_cast<size_t>(world_size)),
        left_(static_cast<size_t>(world_size), false),
        channels_(static_cast<size_t>(world_size) * static_cast<size_t>(world_size)) {}

  int world_size() const { return world_size_; }

  const Contribution& at(int rank) const { return contributions_[static_cast<size_t>(rank)]; }

  // Waits until all ranks have come. Then at() of every rank may be read. An error breaks the group
  // for all.
  absl::Status Enter(const Contribution& mine, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    contributions_[static_cast<size_t>(mine.collective.rank)] = mine;
    TY_RETURN_IF_ERROR(Arrive(mine.collective, timeout));
    for (const Contribution& other : contributions_) {
      if (other.collective.operation == mine.collective.operation && other.size == mine.size &&
          other.root == mine.root) {
        continue;
      }
      return Break(CollectiveMismatch(
          mine.collective,
          absl::StrCat("brought ", mine.size, " elements, while rank ", other.collective.rank,
                       " called ", other.collective.operation, " with ", other.size)));
    }
    return CheckParts(mine);
  }

  // Waits until all ranks are done with the others' memory. It has no deadline: all have come, and
  // no rank may leave while another one still reads its memory.
  absl::Status Leave(const Collective& collective) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return Arrive(collective, absl::InfiniteDuration());
  }

  void Lose(int rank) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    left_[static_cast<size_t>(rank)] = true;
    changed_.SignalAll();
  }

  // Shows `values` to the peer and waits until it has taken them.
  absl::Status Send(const Collective& collective, absl::Span<const float> values, int peer,
                    absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    Channel& channel = ChannelOf(collective.rank, peer);
    channel = {values, true};
    changed_.SignalAll();
    const auto is_taken = [&channel] { return !channel.is_full; };
    return AwaitPeer(collective, peer, timeout, is_taken);
  }

  absl::Status Receive(const Collective& collective, absl::Span<float> values, int peer,
                       absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    Channel& channel = ChannelOf(peer, collective.rank);
    const auto is_full = [&channel] { return channel.is_full; };
    TY_RETURN_IF_ERROR(AwaitPeer(collective, peer, timeout, is_full));
    if (channel.values.size() != values.size()) {
      return Break(WrongPart(collective, peer, channel.values.size(), values.size()));
    }
    std::copy(channel.values.begin(), channel.values.end(), values.begin());
    channel = {};
    changed_.SignalAll();
    return absl::OkStatus();
  }

 private:
  // The message that one rank shows another, until it is taken.
  struct Channel {
    absl::Span<const float> values;
    bool is_full = false;
  };

  Channel& ChannelOf(int from, int to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return channels_[static_cast<size_t>(from) * static_cast<size_t>(world_size_) +
                     static_cast<size_t>(to)];
  }

  absl::Status Break(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    broken_ = true;
    changed_.SignalAll();
    return status;
  }

  // Every rank looks at all pairs, so that all ranks get the error.
  absl::Status CheckParts(const Contribution& mine) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const Contribution& from : contributions_) {
      for (size_t to = 0; to < from.send.size(); ++to) {
        const auto rank = static_cast<size_t>(from.collective.rank);
        const size_t expected = contributions_[to].receive[rank].size();
        if (from.send[to].size() == expected) continue;
        return Break(
            WrongPart(mine.collective, from.collective.rank, from.send[to].size(), expected));
      }
    }
    return absl::OkStatus();
  }

  template <typename Done>
  absl::Status AwaitPeer(const Collective& collective, int peer, absl::Duration timeout, Done done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const absl::Duration deadline = Clock::Real()->Uptime() + timeout;
    while (!done()) {
      if (broken_) return PeerLost(collective, -1, "an earlier collective failed");
      if (left_[static_cast<size_t>(peer)]) {
        return Break(PeerLost(collective, peer, "its communicator is gone"));
      }
      if (changed_.WaitWithTimeout(&mutex_, deadline - Clock::Real()->Uptime()) && !done()) {
        return Break(CollectiveTimedOut(collective, peer, timeout));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Arrive(const Collective& collective, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (broken_) return PeerLost(collective, -1, "an earlier collective failed");
    const int64_t turn = turn_;
    if (++arrived_ == world_size_) {
      arrived_ = 0;
      ++turn_;
      changed_.SignalAll();
      return absl::OkStatus();
    }
    const absl::Duration deadline = Clock::Real()->Uptime() + timeout;
    while (turn_ == turn) {
      const auto lost = std::find(left_.begin(), left_.end(), true);
      if (broken_ || lost != left_.end()) {
        const int peer = lost == left_.end() ? -1 : static_cast<int>(lost - left_.begin());
        return Break(PeerLost(collective, peer, "its communicator is gone"));
      }
      if (changed_.WaitWithTimeout(&mutex_, deadline - Clock::Real()->Uptime()) && turn_ == turn) {
        return Break(CollectiveTimedOut(collective, -1, timeout));
      }
    }
    return absl::OkStatus();
  }

  const int world_size_;
  // Written under the mutex before the turn ends, and read without it until the next turn.
  std::vector<Contribution> contributions_;

  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::vector<bool> left_ ABSL_GUARDED_BY(mutex_);
  std::vector<Channel> channels_ ABSL_GUARDED_BY(mutex_);  // by sender, then by receiver
  int arrived_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t turn_ ABSL_GUARDED_BY(mutex_) = 0;
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;
};

namespace {

constexpr absl::Duration kDefaultTimeout = absl::Seconds(60);

class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalGroup> group, int rank)
      : group_(std::move(group)),
        rank_(rank),
        sent_(static_cast<size_t>(group_->world_size())),
        received_(static_cast<size_t>(group_->world_size())) {}
  ~LocalCommunicator() override { group_->Lose(rank_); }

  int rank() const override { return rank_; }
  int world_size() const override { return group_->world_size(); }
  void set_timeout(absl::Duration timeout) override { timeout_ = timeout; }

  // Each rank sums one block over all ranks and writes it to all of them, so that no two ranks
  // touch the same element.
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

  // Each rank reads what the others show it: 1 step.
  absl::Status AllToAll(absl::Span<const absl::Span<const float>> send,
                        absl::Span<const absl::Span<float>> receive) override {
    Contribution mine{Next("all_to_all")};
    TY_RETURN_IF_ERROR(CheckParts(mine.collective, world_size(), send, receive));
    mine.send = send;
    mine.receive = receive;
    return Run(mine, [this, receive] {
      for (int rank = 0; rank < world_size(); ++rank) {
        const absl::Span<const float> part = group_->at(rank).send[static_cast<size_t>(rank_)];
        std::copy(part.begin(), part.end(), receive[static_cast<size_t>(rank)].begin());
      }
    });
  }

  absl::Status Send(absl::Span<const float> values, int peer) override {
    TY_RETURN_IF_ERROR(CheckPeer({rank_, "send", 0}, rank_, world_size(), peer));
    const Collective collective{rank_, "send", ++sent_[static_cast<size_t>(peer)]};
    return group_->Send(collective, values, peer, timeout_);
  }

  absl::Status Receive(absl::Span<float> values, int peer) override {
    TY_RETURN_IF_ERROR(CheckPeer({rank_, "receive", 0}, rank_, world_size(), peer));
    const Collective collective{rank_, "receive", ++received_[static_cast<size_t>(peer)]};
    return group_->Receive(collective, values, peer, timeout_);
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

 private:
  Collective Next(absl::string_view operation) { return {rank_, operation, ++sequence_}; }

  static absl::Status WrongSizes(const Collective& collective, absl::Span<const float> values,
                                 absl::Span<const float> block) {
    return CollectiveMismatch(
        collective, absl::StrCat(values.size(), " elements do not fit blocks of ", block.size()));
  }

  // Computes the sum of `block` over the ranks, in rank order, in sum_.
  void SumBlock(const Block& block) {
    const float* first = group_->at(0).input;
    sum_.assign(first + block.begin, first + block.end);
    for (int rank = 1; rank < world_size(); ++rank) {
      AddTo(sum_.data(), group_->at(rank).input + block.begin, block.size());
    }
  }

  template <typename Work>
  absl::Status Run(const Contribution& mine, Work work) {
    if (world_size() == 1 && mine.send.empty()) {
      if (mine.output != mine.input) std::copy(mine.input, mine.input + mine.size, mine.output);
      return absl::OkStatus();
    }
    TY_RETURN_IF_ERROR(group_->Enter(mine, timeout_));
    work();
    return group_->Leave(mine.collective);
  }

  const std::shared_ptr<LocalGroup> group_;
  const int rank_;
  absl::Duration timeout_ = kDefaultTimeout;
  int64_t sequence_ = 0;
  std::vector<int64_t> sent_;      // by peer
  std::vector<int64_t> received_;  // by peer
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
