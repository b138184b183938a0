// The state that the ranks of an emulated NCCL communicator share.
#pragma once

#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace trainyard::cuda_on_cpu::nccl {

// One rank's part of an all_reduce of f32 or bf16.
struct Part {
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclFloat32;
};

// One message that a rank sends or receives.
struct Message {
  int peer = -1;
  const float* in = nullptr;  // when it sends
  float* out = nullptr;       // when it receives
  size_t count = 0;
};

// Records how far the device has come with a collective or with messages. A new one stands for work
// that has not begun.
struct Progress {
  bool has_begun = false;
  std::chrono::steady_clock::time_point deadline = {};
  int64_t turn = 0;     // of a collective
  size_t received = 0;  // messages that were looked at
};

// All functions may be called from any thread.
class Group {
 public:
  explicit Group(int ranks);

  // Returns the group for the id, which is made if it does not exist, or null if it was made for
  // another number of ranks.
  static std::shared_ptr<Group> OfId(const ncclUniqueId& id, int ranks);

  int ranks() const { return ranks_; }

  // Adds a rank on the device, or returns an error of the arguments.
  ncclResult_t Join(int rank, int device);
  // Removes a rank. Collectives in which it takes part never complete for the others.
  void Leave(int rank);
  // Records that the rank has made one more call.
  void Call(int rank);
  // Returns the state of a rank: an error, or ncclInProgress if others have not yet made its last
  // call, or have not joined.
  ncclResult_t State(int rank);
  // Records a group of messages, which wait only for their peers.
  void CallMessages(int rank, const std::vector<Message>& messages);
  void Break(int rank, ncclResult_t error);
  // Waits while the state is ncclInProgress.
  ncclResult_t AwaitState(int rank);

  // Goes on with the rank's next collective on the device. Returns true when it is over, with a
  // result or without one, and false while the streams of other ranks have not reached it.
  bool Execute(int rank, const Part& part, Progress& progress);
  // Does so for messages: shows all, then receives all, and is over when those shown have been
  // taken.
  bool ExecuteMessages(int rank, const std::vector<Message>& messages, Progress& progress);

 private:
  // The messages from one rank to another.
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
    bool has_arrived = false;  // at the present collective, with `part`
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
  // Takes the messages that are there. Returns false if one of them does not fit or cannot come any
  // more, and nothing if one is still missing.
  std::optional<bool> TakeMessages(int rank, const std::vector<Message>& messages,
                                   Progress& progress);
  // Returns true if it is no use to wait for the peer of `rank` any longer.
  bool IsInVain(int rank, int peer, const Progress& progress) const;
  // Takes back what the rank has brought to a collective, whose memory may be released soon.
  void Withdraw(int rank);
  // Run the collective once all parts are there. A sum of bf16 is rounded at each rank, as in a
  // ring.
  void Compute();
  template <typename Element>
  void SumAs(size_t count);

  const int ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> members_;
  std::vector<Way> ways_;  // by sender, then by receiver
  int64_t turn_ = 0;
};

}  // namespace trainyard::cuda_on_cpu::nccl

struct ncclComm {
  std::shared_ptr<trainyard::cuda_on_cpu::nccl::Group> group;
  int rank = 0;
  int device = 0;
  bool blocking = true;
  bool finalized = false;
  std::set<void*> registered;  // memory
};

namespace trainyard::cuda_on_cpu::nccl {

// Returns true if the handle belongs to a living communicator.
bool Exists(const ncclComm* communicator);

}  // namespace trainyard::cuda_on_cpu::nccl
