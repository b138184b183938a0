#include "worker/parallel/shm/shm_communicator.h"

#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/duration.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "worker/parallel/collective.h"
#include "worker/parallel/shm/shared_segment.h"
#include "worker/run_dir/rendezvous.h"

namespace trainyard::parallel {
namespace {

constexpr char kAddressKey[] = "shm.0";

// How a rank waits: it looks again at once, then lets other threads of its processor run between
// two looks, and then sleeps. Ranks are rarely further apart than the second limit.
constexpr int kBusyLooks = 1000;
constexpr absl::Duration kYieldTime = absl::Milliseconds(3);
// Asleep, a rank checks this often whether the other one is still alive.
constexpr absl::Duration kLifeCheckInterval = absl::Milliseconds(10);

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class ShmCommunicator : public Communicator {
 public:
  // `lives`: a pidfd of each rank; this one's own is not looked at.
  ShmCommunicator(std::unique_ptr<SharedSegment> segment, std::vector<UniqueFd> lives, int rank,
                  absl::Duration timeout)
      : segment_(std::move(segment)), lives_(std::move(lives)), rank_(rank), timeout_(timeout) {}

  ~ShmCommunicator() override { Leave(); }

  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(lives_.size()); }
  void set_timeout(absl::Duration timeout) override { timeout_ = timeout; }

  // Two ranks read each other's values: 1 step. More: each rank sums one block in rank order and
  // the others read the sums: 2 steps, 2(r-1)/r n floats read by each.
  absl::Status AllReduce(absl::Span<float> values) override {
    Begin("all_reduce", values.size());
    for (size_t begin = 0; begin < values.size(); begin += kSlotElements) {
      TY_RETURN_IF_ERROR(AllReduceChunk(values.subspan(begin, kSlotElements)));
    }
    return absl::OkStatus();
  }

  // Each rank publishes all blocks and sums its own from the others: 1 step.
  absl::Status ReduceScatter(absl::Span<const float> values, absl::Span<float> block) override {
    Begin("reduce_scatter", values.size());
    TY_RETURN_IF_ERROR(CheckSizes(values, block));
    const auto ranks = static_cast<size_t>(world_size());
    const size_t piece = kSlotElements / ranks;
    for (size_t begin = 0; begin < block.size(); begin += piece) {
      const absl::Span<float> part = block.subspan(begin, piece);
      float* mine = Outgoing();
      for (size_t of = 0; of < ranks; ++of) {
        const auto from = values.subspan(of * block.size() + begin, part.size());
        std::copy(from.begin(), from.end(), mine + of * part.size());
      }
      TY_RETURN_IF_ERROR(PublishAndWait());
      SumOverRanks(static_cast<size_t>(rank_) * part.size(), part);
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

  absl::Status Barrier() override {
    Begin("barrier", 0);
    return PublishAndWait();
  }

 private:
  void Begin(absl::string_view operation, size_t size) {
    collective_ = {rank_, operation, collective_.sequence + 1};
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

  // target[i] = the sum over the ranks of what they published at begin + i, in rank order.
  void SumOverRanks(size_t begin, absl::Span<float> target) const {
    std::copy_n(Incoming(0) + begin, target.size(), target.begin());
    for (int of = 1; of < world_size(); ++of) {
      AddTo(target.data(), Incoming(of) + begin, target.size());
    }
  }

  // Where this rank writes what it publishes next. Nobody reads it any more: whoever reads what was
  // published two steps ago has not published the last step, for which this rank has waited.
  float* Outgoing() const { return segment_->buffer(rank_, step_ + 1); }
  // What `rank` published in the step that was last waited for.
  const float* Incoming(int rank) const { return segment_->buffer(rank, step_); }

  absl::Status PublishAndWait() {
    if (!broken_.ok()) return broken_;
    ++step_;
    RankSlot& mine = segment_->slot(rank_);
    mine.fingerprints[step_ % 2].store(fingerprint_, std::memory_order_relaxed);
    // Sequentially consistent, as is the waiter's announcement: one of the two sees the other.
    mine.published.store(step_);
    if (mine.waiters.load() > 0) FutexWakeAll(mine.published);
    WaitLimit limit(Clock::Real()->Uptime(), timeout_);
    for (int i = 1; i < world_size() && broken_.ok(); ++i) {
      broken_ = WaitFor((rank_ + i) % world_size(), limit);
    }
    if (!broken_.ok()) Leave();
    return broken_;
  }

  absl::Status WaitFor(int peer, WaitLimit& limit) {
    RankSlot& slot = segment_->slot(peer);
    for (int look = 0; look < kBusyLooks && !HasPublished(slot); ++look) Pause();
    const absl::Duration sleep_uptime =
        HasPublished(slot) ? absl::InfiniteDuration() : Clock::Real()->Uptime() + kYieldTime;
    while (!HasPublished(slot)) {
      // What it published before it left counts, so look once more.
      if (slot.left.load() != 0 && !HasPublished(slot)) {
        return PeerLost(collective_, peer, "it left the gang");
      }
      const absl::Duration now = Clock::Real()->Uptime();
      const absl::Duration left = limit.Left(now);
      if (left == absl::ZeroDuration()) return CollectiveTimedOut(collective_, peer, timeout_);
      if (now < sleep_uptime) {
        sched_yield();
        continue;
      }
      if (HasEnded(peer) && !HasPublished(slot)) {
        return PeerLost(collective_, peer, "its process has ended");
      }
      const uint32_t seen = slot.published.load();
      slot.waiters.fetch_add(1);
      if (!IsReached(seen)) {
        FutexWait(slot.published, seen, std::min(kLifeCheckInterval, left));
      }
      slot.waiters.fetch_sub(1);
    }
    if (slot.fingerprints[step_ % 2].load(std::memory_order_relaxed) == fingerprint_) {
      return absl::OkStatus();
    }
    return CollectiveMismatch(collective_,
                              absl::StrCat("rank ", peer, " called another collective"));
  }

  // A rank is at most one step ahead, and the counter may wrap.
  bool IsReached(uint32_t published) const { return static_cast<int32_t>(published - step_) >= 0; }
  bool HasPublished(const RankSlot& slot) const {
    return IsReached(slot.published.load(std::memory_order_acquire));
  }

  bool HasEnded(int peer) const {
    pollfd life{.fd = lives_[static_cast<size_t>(peer)].get(), .events = POLLIN, .revents = 0};
    return life.fd >= 0 && poll(&life, 1, 0) == 1;
  }

  void Leave() {
    RankSlot& mine = segment_->slot(rank_);
    mine.left.store(1);
    FutexWakeAll(mine.published);
  }

  const std::unique_ptr<SharedSegment> segment_;
  const std::vector<UniqueFd> lives_;
  const int rank_;
  absl::Duration timeout_;
  Collective collective_;
  uint64_t fingerprint_ = 0;
  uint32_t step_ = 0;
  absl::Status broken_;
};

// Polls `done` until it is true. The error names what is missing, by `missing`.
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
                                                              absl::Duration deadline) {
  if (options.rank == 0) {
    TY_ASSIGN_OR_RETURN(auto segment, SharedSegment::Create(options.world_size));
    const absl::Status set =
        run_dir::SetRendezvousKey(options.run_dir, kAddressKey, segment->Address());
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
        address = run_dir::GetRendezvousKey(options.run_dir, kAddressKey);
        return address.ok();
      },
      [] { return 0; }));
  auto segment = SharedSegment::Attach(*address, options.world_size);
  if (segment.ok() || absl::IsFailedPrecondition(segment.status())) return segment;
  return PeerLost({options.rank, "connect", 0}, 0, segment.status().message());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> ConnectShm(const ShmOptions& options) {
  TY_CHECK(options.rank >= 0 && options.rank < options.world_size);
  const absl::Duration deadline = Clock::Real()->Uptime() + options.connect_timeout;
  TY_ASSIGN_OR_RETURN(auto segment, CreateOrAttach(options, deadline));
  segment->slot(options.rank).pid.store(getpid());
  const auto missing = [&] {
    int rank = 0;
    while (rank < options.world_size && segment->slot(rank).pid.load() != 0) ++rank;
    return rank;
  };
  TY_RETURN_IF_ERROR(Await(
      options, deadline, [&] { return missing() == options.world_size; }, missing));
  std::vector<UniqueFd> lives;
  for (int rank = 0; rank < options.world_size; ++rank) {
    const int pid = segment->slot(rank).pid.load();
    if (pid == getpid()) {
      lives.emplace_back();
      continue;
    }
    const auto life = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (life < 0 && errno == ESRCH) {
      return PeerLost({options.rank, "connect", 0}, rank, "its process has ended");
    }
    // Where the kernel has no pidfd, a lost rank is noticed by the timeout.
    lives.emplace_back(life);
  }
  return std::make_unique<ShmCommunicator>(std::move(segment), std::move(lives), options.rank,
                                           options.timeout);
}

}  // namespace trainyard::parallel
