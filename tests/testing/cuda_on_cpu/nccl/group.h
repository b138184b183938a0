// What the ranks of an emulated NCCL communicator share.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace trainyard::cuda_on_cpu::nccl {

// One rank's part of one collective. Spans are of f32.
struct Part {
  enum class Kind { kAllReduce, kReduceScatter, kAllGather, kBroadcast };
  Kind kind = Kind::kAllReduce;
  const float* in = nullptr;
  float* out = nullptr;
  size_t count = 0;  // as the call says it
  int root = -1;
};

// One send or receive of a rank.
struct Message {
  int peer = -1;
  const float* in = nullptr;  // of a send
  float* out = nullptr;       // of a receive
  size_t count = 0;
};

// All functions may be called from any thread.
class Group {
 public:
  explicit Group(int ranks);

  // The group that the id stands for, made where it is not there yet; null where it was made for
  // another number of ranks.
  static std::shared_ptr<Group> OfId(const ncclUniqueId& id, int ranks);

  int ranks() const { return ranks_; }

  // A rank joins, on the device. An error of the arguments.
  ncclResult_t Join(int rank, int device);
  // A rank lets go: what it takes part in never completes for the others.
  void Leave(int rank);
  // The rank has made one more call. What it returns for `blocking`: waits until all have.
  void Call(int rank);
  // Of a rank: an error, ncclInProgress where others have not yet made its last call, or have not
  // joined.
  ncclResult_t State(int rank);
  // The same of a group of messages: these wait for their peers alone.
  void CallMessages(int rank, const std::vector<Message>& messages);
  void Break(int rank, ncclResult_t error);
  // Waits while the state is ncclInProgress.
  ncclResult_t AwaitState(int rank);

  // Runs the rank's next collective on the device: waits for all other ranks' streams.
  void Execute(int rank, const Part& part);
  // The same with messages: all are shown, then all received, then those shown have been taken.
  void ExecuteMessages(int rank, const std::vector<Message>& messages);

 private:
  // From one rank to another.
  struct Way {
    int64_t sends_called = 0;
    int64_t receives_called = 0;
    std::deque<Message> shown;  // and not taken yet
  };

  struct Rank {
    bool joined = false;
    bool left = false;
    int device = -1;
    int64_t calls = 0;
    ncclResult_t error = ncclSuccess;
    Part part;
  };

  ncclResult_t StateLocked(int rank) const;
  bool SomeoneIsGone() const;
  Way& WayOf(int from, int to) {
    return ways_[static_cast<size_t>(from) * members_.size() + static_cast<size_t>(to)];
  }
  const Way& WayOf(int from, int to) const {
    return ways_[static_cast<size_t>(from) * members_.size() + static_cast<size_t>(to)];
  }
  // Waits for `done`; false where the peer is gone before. Others may have left in peace.
  template <typename Done>
  bool AwaitPeer(std::unique_lock<std::mutex>& lock, int peer, Done done);
  // All parts are there.
  void Compute();

  const int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> members_;
  std::vector<Way> ways_;  // by sender, then by receiver
  int arrived_ = 0;
  int64_t turn_ = 0;
};

}  // namespace trainyard::cuda_on_cpu::nccl

struct ncclComm {
  std::shared_ptr<trainyard::cuda_on_cpu::nccl::Group> group;
  int rank = 0;
  int device = 0;
  bool blocking = true;
  bool finalized = false;
  std::set<void*> registrations;
};

namespace trainyard::cuda_on_cpu::nccl {

// Whether the handle is one that exists.
bool Exists(const ncclComm* communicator);

}  // namespace trainyard::cuda_on_cpu::nccl
