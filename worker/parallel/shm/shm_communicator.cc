// Implements collectives over a shared segment: every rank publishes what it has, waits for the
// others, and reads.
#include "worker/parallel/shm/shm_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "worker/parallel/collective.h"
#include "worker/parallel/shm/peer_wait.h"
#include "worker/parallel/shm/shared_segment.h"
#include "worker/run_dir/rendezvous.h"

namespace trainyard::parallel {
namespace {

std::vector<const std::atomic<uint32_t>*> LeftWords(const SharedSegment& segment, int ranks) {
  std::vector<const std::atomic<uint32_t>*> words;
  words.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) words.push_back(&segment.slot(rank).left);
  return words;
}

class ShmCommunicator : public Communicator {
 public:
  // `lives` has a pidfd of each rank; this rank's own is ignored.
  ShmCommunicator(std::unique_ptr<SharedSegment> segment, std::vector<UniqueFd> lives,
                  Membership membership, absl::Duration timeout)
      : segment_(std::move(segment)),
        wait_(LeftWords(*segment_, membership.size()), std::move(lives)),
        membership_(std::move(membership)),
        rank_(membership_.rank),
        timeout_(timeout),
        sent_(membership_.members.size()),
        received_(membership_.members.size()) {}

  ~ShmCommunicator() override { Leave(); }

  int rank() const override { return rank_; }
  int world_size() const override { return membership_.size(); }
  void set_timeout(absl::Duration timeout) override { timeout_ = timeout; }

  // Two ranks read each other's values: 1 step. With more, each rank sums one block in rank order
  // and the others read the sums: 2 steps, in which each rank reads 2(r-1)/r n floats.
  absl::Status AllReduce(absl::Span<float> values) override {
    Begin("all_reduce", values.size());
    for (size_t begin = 0; begin < values.size(); begin += kSlotElements) {
      TY_RETURN_IF_ERROR(AllReduceChunk(values.subspan(begin, kSlotElements)));
    }
    return absl::OkStatus();
  }

  // Each rank reads the others' blocks: 1 step.
  absl::Status AllGather(absl::Span<const float> block, absl::Span<float> values) override {
    Begin("all_gather", values.size());
    TY_RETURN_IF_ERROR(CheckSizes(values, block));
    for (size_t begin = 0; begin < block.size(); begin += kSlotElements) {
      const absl::Span<const float> part = block.subspan(begin, kSlotElements);
      std::copy(part.begin(), part.end(), Outgoing());
      TY_RETURN_IF_ERROR(PublishAndWait());
      for (int of = 0; of < world_size(); ++of) {
        std::copy_n(Incoming(of), part.size(),
                    values.begin() + static_cast<size_t>(of) * block.size() + begin);
      }
    }
    return absl::OkStatus();
  }

  // The others read the root's values: 1 step.
  absl::Status Broadcast(absl::Span<float> values, int root) override {
    Begin("broadcast", values.size());
    if (root < 0 || root >= world_size()) {
      return CollectiveMismatch(collective_, absl::StrCat("there is no rank ", root));
    }
    for (size_t begin = 0; begin < values.size(); begin += kSlotElements) {
      const absl::Span<float> part = values.subspan(begin, kSlotElements);
      if (rank_ == root) std::copy(part.begin(), part.end(), Outgoing());
      TY_RETURN_IF_ERROR(PublishAndWait());
      if (rank_ != root) std::copy_n(Incoming(root), part.size(), part.begin());
    }
    return absl::OkStatus();
  }

  // Each rank shows all parts, a piece of each at a time, and the others copy what is for them: 1
  // step.
  absl::Status AllToAll(absl::Span<const absl::Span<const float>> send,
                        absl::Span<const absl::Span<float>> receive) override {
    // Sizes agree pair by pair. Each rank shows all of its own sizes with the first pieces.
    Begin("all_to_all", 0);
    TY_RETURN_IF_ERROR(CheckParts(collective_, world_size(), send, receive));
    if (send[Place(rank_)].size() != receive[Place(rank_)].size()) {
      return WrongPart(collective_, collective_.rank, send[Place(rank_)].size(),
                       receive[Place(rank_)].size());
    }
    const auto ranks = static_cast<size_t>(world_size());
    const size_t piece = (kSlotElements - ranks * kFloatsPerSize) / std::max<size_t>(1, ranks - 1);
    size_t pieces = 1;
    for (size_t i = 0; i < pieces; ++i) {
      ShowPieces(send, i, piece);
      TY_RETURN_IF_ERROR(PublishAndWait());
      if (i == 0) TY_RETURN_IF_ERROR(ReadSizes(receive, piece, pieces));
      TakePieces(receive, i, piece);
    }
    std::copy(send[Place(rank_)].begin(), send[Place(rank_)].end(), receive[Place(rank_)].begin());
    return absl::OkStatus();
  }

  // Uses the channel between the two, and returns when the last chunk is in it.
  absl::Status Send(absl::Span<const float> values, int peer) override {
    const Collective next{membership_.Global(rank_), "send", 0};
    TY_RETURN_IF_ERROR(CheckPeer(next, rank_, world_size(), peer));
    if (!broken_.ok()) return broken_;
    const Collective send{next.rank, "send", ++sent_[Place(peer)]};
    const absl::Duration deadline = Clock::Real()->Uptime() + timeout_;
    ChannelSlot& channel = segment_->channel(rank_, peer);
    // An empty message is one empty chunk.
    for (size_t begin = 0; begin == 0 || begin < values.size(); begin += kChannelElements) {
      const uint32_t chunk = channel.sent.written.load();
      // Both buffers may be full. Then the older one must have been read.
      const auto is_free = [&](uint32_t read) { return chunk - read < 2; };
      TY_RETURN_IF_ERROR(Await(send, peer, WatchedWord{channel.taken.read, channel.taken.writers},
                               deadline, is_free));
      const auto part = values.subspan(begin, kChannelElements);
      std::copy(part.begin(), part.end(), segment_->channel_buffer(rank_, peer, chunk));
      channel.sent.elements_left[chunk % 2].store(values.size() - begin, std::memory_order_relaxed);
      WatchedWord{channel.sent.written, channel.sent.readers}.Set(chunk + 1);
    }
    return absl::OkStatus();
  }

  absl::Status Receive(absl::Span<float> values, int peer) override {
    const Collective next{membership_.Global(rank_), "receive", 0};
    TY_RETURN_IF_ERROR(CheckPeer(next, rank_, world_size(), peer));
    if (!broken_.ok()) return broken_;
    const Collective receive{next.rank, "receive", ++received_[Place(peer)]};
    const absl::Duration deadline = Clock::Real()->Uptime() + timeout_;
    ChannelSlot& channel = segment_->channel(peer, rank_);
    for (size_t begin = 0; begin == 0 || begin < values.size(); begin += kChannelElements) {
      const uint32_t chunk = channel.taken.read.load();
      const auto is_there = [&](uint32_t written) { return written != chunk; };
      TY_RETURN_IF_ERROR(Await(receive, peer,
                               WatchedWord{channel.sent.written, channel.sent.readers}, deadline,
                               is_there));
      const size_t left = channel.sent.elements_left[chunk % 2].load(std::memory_order_relaxed);
      if (left != values.size() - begin) {
        return Break(WrongPart(receive, membership_.Global(peer), left, values.size() - begin));
      }
      const auto part = values.subspan(begin, kChannelElements);
      std::copy_n(segment_->channel_buffer(peer, rank_, chunk), part.size(), part.begin());
      WatchedWord{channel.taken.read, channel.taken.writers}.Set(chunk + 1);
    }
    return absl::OkStatus();
  }

 private:
  // In an all_to_all, each rank's first publication says how much it has for each.
  static constexpr size_t kFloatsPerSize = sizeof(uint64_t) / sizeof(float);

  static size_t Place(int rank) { return static_cast<size_t>(rank); }

  // Returns the index of the piece that `from` shows for `to`. It shows none for itself.
  static size_t PieceOf(size_t from, size_t to) { return to < from ? to : to - 1; }

  void ShowPieces(absl::Span<const absl::Span<const float>> send, size_t i, size_t piece) const {
    float* at = Outgoing();
    for (size_t to = 0; to < send.size(); ++to) {
      const uint64_t size = send[to].size();
      std::memcpy(at + to * kFloatsPerSize, &size, sizeof(size));
      if (to == Place(rank_) || i * piece >= size) continue;
      const auto part = send[to].subspan(i * piece, piece);
      std::copy(part.begin(), part.end(),
                at + send.size() * kFloatsPerSize + PieceOf(Place(rank_), to) * piece);
    }
  }

  void TakePieces(absl::Span<const absl::Span<float>> receive, size_t i, size_t piece) const {
    for (size_t of = 0; of < receive.size(); ++of) {
      if (of == Place(rank_) || i * piece >= receive[of].size()) continue;
      const auto part = receive[of].subspan(i * piece, piece);
      const float* from = Incoming(static_cast<int>(of)) + receive.size() * kFloatsPerSize;
      std::copy_n(from + PieceOf(of, Place(rank_)) * piece, part.size(), part.begin());
    }
  }

  // Sets `pieces` to the number that the largest part of all has, for which all ranks stay in step.
  absl::Status ReadSizes(absl::Span<const absl::Span<float>> receive, size_t piece,
                         size_t& pieces) {
    for (size_t of = 0; of < receive.size(); ++of) {
      for (size_t to = 0; to < receive.size(); ++to) {
        uint64_t size = 0;
        std::memcpy(&size, Incoming(static_cast<int>(of)) + to * kFloatsPerSize, sizeof(size));
        if (to == Place(rank_) && size != receive[of].size()) {
          return Break(WrongPart(collective_, membership_.Global(static_cast<int>(of)), size,
                                 receive[of].size()));
        }
        if (to != of) pieces = std::max(pieces, (size + piece - 1) / piece);
      }
    }
    return absl::OkStatus();
  }
  void Begin(absl::string_view operation, size_t size) {
    collective_ = {membership_.Global(rank_), operation, collective_.sequence + 1};
    fingerprint_ = size;
    for (const char c : operation) {
      fingerprint_ = (fingerprint_ ^ static_cast<uint8_t>(c)) * 0x100000001B3U;
    }
  }

  absl::Status CheckSizes(absl::Span<const float> values, absl::Span<const float> block) const {
    if (values.size() == block.size() * static_cast<size_t>(world_size())) return absl::OkStatus();
    return CollectiveMismatch(
        collective_, absl::StrCat(values.size(), " elements do not fit blocks of ", block.size()));
  }

  absl::Status AllReduceChunk(absl::Span<float> values) {
    std::copy(values.begin(), values.end(), Outgoing());
    TY_RETURN_IF_ERROR(PublishAndWait());
    if (world_size() <= 2) {
      SumOverRanks(0, values);
      return absl::OkStatus();
    }
    const Block mine = BlockOf(values.size(), rank_, world_size());
    SumOverRanks(mine.begin, values.subspan(mine.begin, mine.size()));
    std::copy_n(values.begin() + mine.begin, mine.size(), Outgoing());
    TY_RETURN_IF_ERROR(PublishAndWait());
    for (int of = 0; of < world_size(); ++of) {
      const Block block = BlockOf(values.size(), of, world_size());
      std::copy_n(Incoming(of), block.size(), values.begin() + block.begin);
    }
    return absl::OkStatus();
  }

  // Computes target[i] = the sum over the ranks of what they published at begin + i, in rank order.
  void SumOverRanks(size_t begin, absl::Span<float> target) const {
    std::copy_n(Incoming(0) + begin, target.size(), target.begin());
    for (int of = 1; of < world_size(); ++of) {
      AddTo(target.data(), Incoming(of) + begin, target.size());
    }
  }

  // Returns where this rank writes what it publishes next. Nobody reads it any more: a rank that
  // still reads what was published two steps ago has not published the last step, for which this
  // rank has waited.
  float* Outgoing() const { return segment_->buffer(rank_, step_ + 1); }
  // Returns the data that `rank` published in the step that was last waited for.
  const float* Incoming(int rank) const { return segment_->buffer(rank, step_); }

  absl::Status PublishAndWait() {
    if (!broken_.ok()) return broken_;
    ++step_;
    RankSlot& mine = segment_->slot(rank_);
    mine.fingerprints[step_ % 2].store(fingerprint_, std::memory_order_relaxed);
    WatchedWord{mine.published, mine.waiters}.Set(step_);
    const absl::Duration deadline = Clock::Real()->Uptime() + timeout_;
    for (int i = 1; i < world_size(); ++i) {
      TY_RETURN_IF_ERROR(AwaitPublished((rank_ + i) % world_size(), deadline));
    }
    return absl::OkStatus();
  }

  absl::Status AwaitPublished(int peer, absl::Duration deadline) {
    RankSlot& slot = segment_->slot(peer);
    // A rank is at most one step ahead, and the counter may wrap.
    const auto is_there = [this](uint32_t published) {
      return static_cast<int32_t>(published - step_) >= 0;
    };
    TY_RETURN_IF_ERROR(
        Await(collective_, peer, WatchedWord{slot.published, slot.waiters}, deadline, is_there));
    if (slot.fingerprints[step_ % 2].load(std::memory_order_relaxed) == fingerprint_) {
      return absl::OkStatus();
    }
    return Break(CollectiveMismatch(collective_, absl::StrCat("rank ", membership_.Global(peer),
                                                              " called another collective")));
  }

  template <typename IsReached>
  absl::Status Await(const Collective& collective, int peer, const WatchedWord& watched,
                     absl::Duration deadline, IsReached is_reached) {
    const PeerWaitEnd end = wait_.Await(peer, watched, deadline, is_reached);
    if (end == PeerWaitEnd::kDone) return absl::OkStatus();
    return Break(StatusOf(end, collective, membership_.Global(peer), timeout_));
  }

  absl::Status Break(absl::Status status) {
    broken_ = std::move(status);
    Leave();
    return broken_;
  }

  void Leave() {
    RankSlot& mine = segment_->slot(rank_);
    mine.left.store(1);
    FutexWakeAll(mine.published);
  }

  const std::unique_ptr<SharedSegment> segment_;
  const PeerWait wait_;
  const Membership membership_;
  const int rank_;  // in the group
  absl::Duration timeout_;
  Collective collective_;
  uint64_t fingerprint_ = 0;
  uint32_t step_ = 0;
  std::vector<int64_t> sent_;      // messages, by peer
  std::vector<int64_t> received_;  // messages, by peer
  absl::Status broken_;
};

// Polls `done` until it is true. The error uses `missing` to name what is missing.
template <typename Done, typename Missing>
absl::Status Await(const ShmOptions& options, absl::Duration deadline, Done done, Missing missing) {
  constexpr absl::Duration kPoll = absl::Microseconds(500);
  const Collective connect{options.rank, "connect", 0};
  Clock* clock = Clock::Real();
  while (!done()) {
    if (options.cancelled != nullptr && options.cancelled->load()) {
      return absl::CancelledError(
          absl::StrCat("rank ", options.rank, ": stopped while it waited for the other ranks"));
    }
    if (clock->Uptime() >= deadline) {
      return CollectiveTimedOut(connect, missing(), options.connect_timeout);
    }
    clock->SleepFor(kPoll);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SharedSegment>> CreateOrAttach(const ShmOptions& options,
                                                              const Membership& membership,
                                                              absl::Duration deadline) {
  // The first member owns the key.
  const std::string key = absl::StrCat("shm.", membership.key_prefix, membership.Global(0));
  if (membership.rank == 0) {
    TY_ASSIGN_OR_RETURN(auto segment, SharedSegment::Create(membership.size()));
    const absl::Status set = run_dir::SetRendezvousKey(options.run_dir, key, segment->Address());
    if (absl::IsAlreadyExists(set)) {
      return absl::FailedPreconditionError(absl::StrCat("'", options.run_dir.RendezvousDir(),
                                                        "' holds keys of an earlier run; remove "
                                                        "the folder"));
    }
    TY_RETURN_IF_ERROR(set);
    return segment;
  }
  absl::StatusOr<std::string> address;
  TY_RETURN_IF_ERROR(Await(
      options, deadline,
      [&] {
        address = run_dir::GetRendezvousKey(options.run_dir, key);
        return address.ok();
      },
      [&] { return membership.Global(0); }));
  auto segment = SharedSegment::Attach(*address, membership.size());
  if (segment.ok() || absl::IsFailedPrecondition(segment.status())) return segment;
  return PeerLost({options.rank, "connect", 0}, membership.Global(0), segment.status().message());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> ConnectShm(const ShmOptions& options) {
  Membership membership = MembershipOf(options.group, options.rank, options.world_size);
  const absl::Duration deadline = Clock::Real()->Uptime() + options.connect_timeout;
  TY_ASSIGN_OR_RETURN(auto segment, CreateOrAttach(options, membership, deadline));
  segment->slot(membership.rank).pid.store(getpid());
  const auto missing = [&] {
    int rank = 0;
    while (rank < membership.size() && segment->slot(rank).pid.load() != 0) ++rank;
    return rank;
  };
  TY_RETURN_IF_ERROR(Await(
      options, deadline, [&] { return missing() == membership.size(); },
      [&] {
        const int rank = missing();
        // The rank may have come in the meantime.
        return rank < membership.size() ? membership.Global(rank) : -1;
      }));
  std::vector<UniqueFd> lives;
  for (int rank = 0; rank < membership.size(); ++rank) {
    absl::StatusOr<UniqueFd> life = OpenLife(segment->slot(rank).pid.load());
    if (!life.ok()) {
      return PeerLost({options.rank, "connect", 0}, membership.Global(rank),
                      "its process has ended");
    }
    lives.push_back(*std::move(life));
  }
  return std::make_unique<ShmCommunicator>(std::move(segment), std::move(lives),
                                           std::move(membership), options.timeout);
}

}  // namespace trainyard::parallel
