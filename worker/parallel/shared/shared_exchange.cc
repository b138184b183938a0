// Implements the rounds of an exchange over shared memory: wait for the counters of the others,
// sum, publish.
#include "worker/parallel/shared/shared_exchange.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "worker/parallel/collective.h"
#include "worker/parallel/shm/peer_wait.h"
#include "worker/parallel/sum_program.h"

namespace trainyard::parallel {
namespace {

using Counter = std::atomic<uint64_t> RankBoard::*;

// Waits are either shorter than a time slice, or long enough to give the processor to others.
constexpr absl::Duration kYieldTime = absl::Microseconds(200);

std::vector<const std::atomic<uint32_t>*> LeftWords(const SharedGang& gang) {
  std::vector<const std::atomic<uint32_t>*> words;
  for (const RankBoard* board : gang.boards) words.push_back(&board->left);
  return words;
}

size_t Bytes(int64_t elements) {
  return static_cast<size_t>(elements) * sizeof(float);
}

ExchangePlan OneTermARank(int ranks) {
  return {.terms = std::vector<int>(static_cast<size_t>(ranks), 1), .sum = PlanRankSum(ranks)};
}

// Hashes what ranks must agree on before they touch each other's memory.
uint64_t Fingerprint(const SharedExchangeOptions& options, const ExchangePlan& plan,
                     size_t ballot_size) {
  uint64_t hash = ballot_size;
  const auto add = [&hash](int64_t value) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 0x100000001B3U;
  };
  add(options.gradient_elements);
  add(options.is_sharded ? 1 : 0);
  for (const Bucket& bucket : options.buckets) {
    add(bucket.begin);
    add(bucket.end);
  }
  for (const int terms : plan.terms) add(terms);
  for (const SumOp op : plan.sum.ops) add(op == SumOp::kPush ? 1 : 2);
  return hash;
}

class SharedExchange final : public GradientExchange {
 public:
  SharedExchange(SharedGang gang, const SharedExchangeOptions& options)
      : gang_(std::move(gang)),
        options_(options),
        mine_(*gang_.boards[static_cast<size_t>(gang_.rank)]),
        wait_(LeftWords(gang_), std::move(gang_.lives), kYieldTime),
        timeout_(options.timeout) {
    TY_CHECK(!options_.buckets.empty());
    while (scattered_ < options_.buckets.size() && IsScattered(scattered_)) ++scattered_;
    TY_CHECK_OK(SetPlan(OneTermARank(gang_.size()), {-1}));
  }

  ~SharedExchange() override { Leave(); }

  absl::Span<const Bucket> buckets() const override { return options_.buckets; }
  bool is_sharded() const override { return options_.is_sharded; }
  Bucket OwnBlock(size_t bucket) const override {
    return IsScattered(bucket) ? BlockOfRank(bucket, gang_.rank) : options_.buckets[bucket];
  }

  absl::Status SetPlan(const ExchangePlan& plan, absl::Span<const int> term_slots) override;
  void set_timeout(absl::Duration timeout) override { timeout_ = timeout; }
  void set_tracing(bool traces) override { traces_ = traces; }

  absl::Status Begin(int64_t step, absl::Span<const double> ballot) override;
  absl::Status Ready(int64_t end) override;
  absl::Status Land(size_t bucket) override;
  absl::Status Share(size_t bucket) override;
  absl::Status Finish(absl::Span<double> ballots) override;
  const CommStats& stats() const override { return stats_; }
  absl::Status GatherBlocks(absl::Span<float> values) override;

 private:
  // Returns true if each rank gets only its own block.
  bool IsScattered(size_t bucket) const {
    return options_.is_sharded && options_.buckets[bucket].end <= options_.gradient_elements;
  }
  // Returns the part of a bucket that `rank` sums and, if it is sharded, updates.
  Bucket BlockOfRank(size_t bucket, int rank) const;
  size_t rank() const { return static_cast<size_t>(gang_.rank); }

  void Publish(Counter counter, uint64_t value);
  bool HasReached(int peer, Counter counter, uint64_t value) const {
    return (gang_.boards[static_cast<size_t>(peer)]->*counter).load(std::memory_order_acquire) >=
           value;
  }
  bool AllHaveReached(Counter counter, uint64_t value) const;
  // Waits for all ranks. `operation` and `bucket` are for errors, whose sequence number is `value`.
  absl::Status Await(Counter counter, uint64_t value, absl::string_view operation, size_t bucket);
  absl::Status Break(absl::Status status);
  void Leave() {
    mine_.left.store(1);
    FutexWakeAll(mine_.changes);
  }

  // Returns the value of a counter when the first `buckets` buckets of this step are done.
  uint64_t Count(size_t buckets) const { return rounds_ * options_.buckets.size() + buckets; }

  // Sums the own blocks of the buckets that are ready everywhere, without waiting.
  absl::Status ReduceReady();
  absl::Status Reduce(size_t bucket);
  absl::Status CheckPlans();
  // Copies the own parameters to where they belong, once no rank's backward reads them there.
  void PushParameters();

  // Adds the time of its life to the step's total, and to the time of its purpose.
  class Timed {
   public:
    Timed(SharedExchange& exchange, bool is_hidden)
        : exchange_(exchange), is_hidden_(is_hidden), begin_(Clock::Real()->Uptime()) {}
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;
    ~Timed() {
      const absl::Duration time = Clock::Real()->Uptime() - begin_;
      exchange_.current_.total += time;
      if (!is_hidden_) exchange_.current_.exposed += time;
    }

   private:
    SharedExchange& exchange_;
    const bool is_hidden_;
    const absl::Duration begin_;
  };
  void Trace(CommEvent::Kind kind, size_t bucket, absl::Duration begin, int64_t bytes);

  SharedGang gang_;
  const SharedExchangeOptions options_;
  RankBoard& mine_;
  const PeerWait wait_;
  absl::Duration timeout_;
  bool traces_ = false;
  size_t scattered_ = 0;  // the number of scattered buckets, which come first
  ExchangePlan plan_;
  std::unique_ptr<SumProgram> program_;
  absl::Status broken_;

  uint64_t rounds_ = 0;  // steps that were finished
  uint64_t gathers_ = 0;
  // These describe the step that has begun.
  bool has_begun_ = false;
  int64_t step_ = 0;
  size_t ballot_size_ = 0;
  size_t ready_ = 0;
  size_t reduced_ = 0;
  size_t landed_ = 0;
  size_t updated_ = 0;  // buckets for which Share was called
  size_t pushed_ = 0;
  CommStats current_;
  CommStats stats_;
  // The terms of all ranks, in the order of the plan: as a whole, and in the own block.
  std::vector<const float*> sources_;
  std::vector<const float*> terms_;
  std::vector<float*> targets_;
};

Bucket SharedExchange::BlockOfRank(size_t bucket, int rank) const {
  const Bucket& whole = options_.buckets[bucket];
  const Block block = BlockOf(static_cast<size_t>(whole.size()), rank, gang_.size());
  return {whole.begin + static_cast<int64_t>(block.begin),
          whole.begin + static_cast<int64_t>(block.end)};
}

void SharedExchange::Publish(Counter counter, uint64_t value) {
  (mine_.*counter).store(value, std::memory_order_release);
  const uint32_t changes = mine_.changes.load(std::memory_order_relaxed);
  WatchedWord{mine_.changes, mine_.sleepers}.Set(changes + 1);
}

bool SharedExchange::AllHaveReached(Counter counter, uint64_t value) const {
  for (int peer = 0; peer < gang_.size(); ++peer) {
    if (!HasReached(peer, counter, value)) return false;
  }
  return true;
}

absl::Status SharedExchange::Await(Counter counter, uint64_t value, absl::string_view operation,
                                   size_t bucket) {
  if (AllHaveReached(counter, value)) return absl::OkStatus();
  const absl::Duration begin = Clock::Real()->Uptime();
  for (int i = 1; i < gang_.size(); ++i) {
    const int peer = (gang_.rank + i) % gang_.size();
    RankBoard& board = *gang_.boards[static_cast<size_t>(peer)];
    const PeerWaitEnd end =
        wait_.Await(peer, WatchedWord{board.changes, board.sleepers}, begin + timeout_,
                    [&](uint32_t) { return HasReached(peer, counter, value); });
    if (end == PeerWaitEnd::kDone) continue;
    const Collective collective = {gang_.members[rank()], operation, static_cast<int64_t>(value)};
    return Break(
        Annotate(StatusOf(end, collective, gang_.members[static_cast<size_t>(peer)], timeout_),
                 has_begun_ ? absl::StrCat("step ", step_, ", bucket ", bucket) : "checkpoint"));
  }
  Trace(CommEvent::Kind::kWait, bucket, begin, 0);
  return absl::OkStatus();
}

absl::Status SharedExchange::Break(absl::Status status) {
  broken_ = std::move(status);
  Leave();
  return broken_;
}

void SharedExchange::Trace(CommEvent::Kind kind, size_t bucket, absl::Duration begin,
                           int64_t bytes) {
  if (!traces_) return;
  current_.events.push_back(
      {kind, static_cast<int64_t>(bucket), begin, Clock::Real()->Uptime(), bytes});
}

absl::Status SharedExchange::SetPlan(const ExchangePlan& plan, absl::Span<const int> term_slots) {
  TY_CHECK(!has_begun_);
  const auto pushes = std::count(plan.sum.ops.begin(), plan.sum.ops.end(), SumOp::kPush);
  int64_t terms = 0;
  for (const int of_rank : plan.terms) terms += of_rank;
  TY_CHECK(plan.terms.size() == gang_.memory.size() && pushes == terms);
  TY_CHECK(plan.terms[rank()] == static_cast<int>(term_slots.size()));
  TY_CHECK(term_slots.size() <= kTermsMax);
  const auto slots = static_cast<int>(gang_.memory[rank()].slots.size());
  for (const int slot : term_slots) TY_CHECK(slot >= -1 && slot < slots);
  // Nobody reads these now, since all blocks of the last step have been summed.
  std::copy(term_slots.begin(), term_slots.end(), mine_.term_slots);
  plan_ = plan;
  program_ = std::make_unique<SumProgram>(plan.sum);
  return absl::OkStatus();
}

absl::Status SharedExchange::Begin(int64_t step, absl::Span<const double> ballot) {
  TY_RETURN_IF_ERROR(broken_);
  TY_CHECK(!has_begun_);
  if (ballot.size() > kBallotMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ballot of ", ballot.size(), " values; expected at most ", kBallotMax));
  }
  has_begun_ = true;
  step_ = step;
  ready_ = reduced_ = landed_ = updated_ = pushed_ = 0;
  current_ = CommStats();
  ballot_size_ = ballot.size();
  std::copy(ballot.begin(), ballot.end(), mine_.ballots[rounds_ % 2]);
  mine_.fingerprint = Fingerprint(options_, plan_, ballot.size());
  return absl::OkStatus();
}

absl::Status SharedExchange::Ready(int64_t end) {
  TY_RETURN_IF_ERROR(broken_);
  TY_CHECK(has_begun_);
  const size_t before = ready_;
  while (ready_ < options_.buckets.size() && options_.buckets[ready_].end <= end) ++ready_;
  if (ready_ > before) Publish(&RankBoard::ready, Count(ready_));
  const Timed timed(*this, /*is_hidden=*/true);
  return ReduceReady();
}

absl::Status SharedExchange::ReduceReady() {
  while (reduced_ < ready_ && AllHaveReached(&RankBoard::ready, Count(reduced_ + 1))) {
    TY_RETURN_IF_ERROR(Reduce(reduced_));
  }
  return absl::OkStatus();
}

absl::Status SharedExchange::CheckPlans() {
  sources_.clear();
  for (size_t of = 0; of < gang_.memory.size(); ++of) {
    const RankBoard& board = *gang_.boards[of];
    if (board.fingerprint != mine_.fingerprint) {
      const Collective collective = {gang_.members[rank()], "reduce",
                                     static_cast<int64_t>(Count(1))};
      return Break(Annotate(
          CollectiveMismatch(collective, absl::StrCat("rank ", gang_.members[of],
                                                      " has other buckets, terms or ballots")),
          absl::StrCat("step ", step_, ", bucket 0")));
    }
    const RankMemory& memory = gang_.memory[of];
    for (int term = 0; term < plan_.terms[of]; ++term) {
      const int32_t slot = board.term_slots[term];
      sources_.push_back(slot < 0 ? memory.reduction : memory.slots[static_cast<size_t>(slot)]);
    }
  }
  terms_.resize(sources_.size());
  return absl::OkStatus();
}

absl::Status SharedExchange::Reduce(size_t bucket) {
  if (bucket == 0) TY_RETURN_IF_ERROR(CheckPlans());
  const absl::Duration begin = Clock::Real()->Uptime();
  const Bucket block = BlockOfRank(bucket, gang_.rank);
  for (size_t i = 0; i < sources_.size(); ++i) terms_[i] = sources_[i] + block.begin;
  targets_ = {gang_.memory[rank()].reduction + block.begin};
  for (size_t of = 0; of < gang_.memory.size() && !IsScattered(bucket); ++of) {
    if (of != rank()) targets_.push_back(gang_.memory[of].reduction + block.begin);
  }
  program_->Run(terms_, static_cast<size_t>(block.size()), targets_);
  // The others read this rank's terms of their blocks, and get the sums of its own block.
  const int64_t elements = (options_.buckets[bucket].size() - block.size()) * plan_.terms[rank()] +
                           block.size() * (static_cast<int64_t>(targets_.size()) - 1);
  current_.bytes_sent += static_cast<int64_t>(Bytes(elements));
  Trace(CommEvent::Kind::kReduce, bucket, begin, static_cast<int64_t>(Bytes(elements)));
  Publish(&RankBoard::reduced, Count(++reduced_));
  return absl::OkStatus();
}

absl::Status SharedExchange::Land(size_t bucket) {
  TY_RETURN_IF_ERROR(broken_);
  TY_CHECK(has_begun_ && bucket == landed_ && bucket < ready_);
  const Timed timed(*this, /*is_hidden=*/false);
  TY_RETURN_IF_ERROR(ReduceReady());
  while (reduced_ <= bucket) {
    TY_RETURN_IF_ERROR(Await(&RankBoard::ready, Count(reduced_ + 1), "reduce", reduced_));
    TY_RETURN_IF_ERROR(ReduceReady());
  }
  PushParameters();
  if (!IsScattered(bucket)) {
    TY_RETURN_IF_ERROR(Await(&RankBoard::reduced, Count(bucket + 1), "reduce", bucket));
  }
  ++landed_;
  return absl::OkStatus();
}

absl::Status SharedExchange::Share(size_t bucket) {
  TY_RETURN_IF_ERROR(broken_);
  if (!IsScattered(bucket)) return absl::OkStatus();
  TY_CHECK(bucket == updated_ && bucket < landed_);
  const Timed timed(*this, /*is_hidden=*/false);
  ++updated_;
  PushParameters();
  return absl::OkStatus();
}

void SharedExchange::PushParameters() {
  if (pushed_ == updated_ || !AllHaveReached(&RankBoard::ready, Count(options_.buckets.size()))) {
    return;
  }
  for (; pushed_ < updated_; ++pushed_) {
    const absl::Duration begin = Clock::Real()->Uptime();
    const Bucket block = BlockOfRank(pushed_, gang_.rank);
    for (size_t of = 0; of < gang_.memory.size(); ++of) {
      if (of == rank()) continue;
      std::memcpy(gang_.memory[of].parameters + block.begin,
                  gang_.memory[rank()].parameters + block.begin, Bytes(block.size()));
    }
    const auto bytes = static_cast<int64_t>(Bytes(block.size() * (gang_.size() - 1)));
    current_.bytes_sent += bytes;
    Trace(CommEvent::Kind::kShare, pushed_, begin, bytes);
  }
  Publish(&RankBoard::shared, Count(pushed_));
}

absl::Status SharedExchange::Finish(absl::Span<double> ballots) {
  TY_RETURN_IF_ERROR(broken_);
  const size_t all = options_.buckets.size();
  TY_CHECK(has_begun_ && landed_ == all && updated_ == scattered_);
  TY_CHECK(ballots.size() == gang_.memory.size() * ballot_size_);
  if (scattered_ > 0) {
    const Timed timed(*this, /*is_hidden=*/false);
    TY_RETURN_IF_ERROR(Await(&RankBoard::ready, Count(all), "reduce", all - 1));
    PushParameters();
    TY_RETURN_IF_ERROR(Await(&RankBoard::shared, Count(scattered_), "share", scattered_ - 1));
  }
  for (size_t of = 0; of < gang_.memory.size(); ++of) {
    std::copy_n(gang_.boards[of]->ballots[rounds_ % 2], ballot_size_,
                ballots.begin() + static_cast<std::ptrdiff_t>(of * ballot_size_));
  }
  std::swap(stats_, current_);
  has_begun_ = false;
  ++rounds_;
  return absl::OkStatus();
}

absl::Status SharedExchange::GatherBlocks(absl::Span<float> values) {
  TY_RETURN_IF_ERROR(broken_);
  TY_CHECK(!has_begun_ && static_cast<int64_t>(values.size()) == options_.gradient_elements);
  if (!options_.is_sharded) return absl::OkStatus();
  const auto for_blocks = [&](int of, const auto& body) {
    float* const reduction = gang_.memory[static_cast<size_t>(of)].reduction;
    for (size_t bucket = 0; bucket < options_.buckets.size(); ++bucket) {
      if (!IsScattered(bucket)) continue;
      const Bucket block = BlockOfRank(bucket, of);
      body(reduction + block.begin, values.data() + block.begin, Bytes(block.size()));
    }
  };
  for_blocks(gang_.rank, [](float* reduction, const float* value, size_t bytes) {
    std::memcpy(reduction, value, bytes);
  });
  Publish(&RankBoard::gathered, ++gathers_);
  TY_RETURN_IF_ERROR(Await(&RankBoard::gathered, gathers_, "gather", 0));
  for (int of = 0; of < gang_.size(); ++of) {
    if (of == gang_.rank) continue;
    for_blocks(of, [](const float* reduction, float* value, size_t bytes) {
      std::memcpy(value, reduction, bytes);
    });
  }
  Publish(&RankBoard::gathered, ++gathers_);
  TY_RETURN_IF_ERROR(Await(&RankBoard::gathered, gathers_, "gather", 0));
  for_blocks(gang_.rank, [](float* reduction, const float*, size_t bytes) {
    std::memset(reduction, 0, bytes);
  });
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<GradientExchange> MakeSharedExchange(SharedGang gang,
                                                     const SharedExchangeOptions& options) {
  return std::make_unique<SharedExchange>(std::move(gang), options);
}

}  // namespace trainyard::parallel
