// Implements the collectives of a step: blocks of terms go to their owners, and sums or parameters
// come back to all.
#include "worker/parallel/block_exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/hash.h"
#include "common/base/status_macros.h"
#include "worker/parallel/collective.h"

namespace trainyard::parallel {
namespace {

// Doubles and text travel as the bits of floats.
constexpr size_t kFloatsPerDouble = sizeof(double) / sizeof(float);

std::string TextOf(const WireExchangeOptions& options) {
  std::string text =
      absl::StrCat(HashOfBuckets(options.buckets), " ", options.gradient_elements, " ",
                   options.is_sharded, " ", absl::StrJoin(options.plan.terms, ","), " ");
  for (const SumOp op : options.plan.sum.ops) text += op == SumOp::kPush ? 'p' : '+';
  return text;
}

absl::Span<float> Part(absl::Span<float> values, const Bucket& part) {
  return values.subspan(static_cast<size_t>(part.begin), static_cast<size_t>(part.size()));
}

}  // namespace

BlockExchange::BlockExchange(Communicator& communicator, WireExchangeOptions options)
    : communicator_(communicator), options_(std::move(options)), send_(ranks()), receive_(ranks()) {
  if (options_.members.empty()) {
    options_.members.resize(ranks());
    std::iota(options_.members.begin(), options_.members.end(), 0);
  }
  TY_CHECK(options_.members.size() == ranks());
  SetPlan(ExchangePlan(options_.plan), std::vector<int>(options_.term_slots));
}

void BlockExchange::SetPlan(const ExchangePlan& plan, absl::Span<const int> term_slots) {
  TY_CHECK(plan.terms.size() == ranks());
  TY_CHECK(static_cast<size_t>(plan.terms[rank()]) == term_slots.size());
  options_.plan = plan;
  options_.term_slots.assign(term_slots.begin(), term_slots.end());
  program_ = std::make_unique<SumProgram>(options_.plan.sum);
  terms_.reserve(program_->terms());
  // Memory for the largest bucket is allocated now, and not during a step.
  size_t largest = 0;
  for (size_t bucket = 0; bucket < options_.buckets.size(); ++bucket) {
    const Bucket block =
        IsDirect(bucket) ? options_.buckets[bucket] : BlockOfRank(bucket, communicator_.rank());
    largest = std::max(largest, static_cast<size_t>(block.size()));
  }
  const size_t others = program_->terms() - term_slots.size();
  received_.resize(largest * others);
}

bool BlockExchange::IsForAll(size_t bucket) const {
  return !options_.is_sharded || options_.buckets[bucket].begin >= options_.gradient_elements;
}

Bucket BlockExchange::BlockOfRank(size_t bucket, int rank) const {
  const Bucket& all = options_.buckets[bucket];
  const Block block = BlockOf(static_cast<size_t>(all.size()), rank, communicator_.world_size());
  return {all.begin + static_cast<int64_t>(block.begin),
          all.begin + static_cast<int64_t>(block.end)};
}

// Two ranks with one term each exchange everything, which takes the same bytes in one step.
bool BlockExchange::IsDirect(size_t bucket) const {
  return ranks() == 2 && options_.plan.terms == std::vector<int>{1, 1} && IsForAll(bucket);
}

absl::Span<float> BlockExchange::Memory(int slot) const {
  return slot < 0 ? options_.reduction : options_.slots[static_cast<size_t>(slot)];
}

absl::Status BlockExchange::Exchange() {
  // Terms that stay on this rank already lie where they belong.
  send_[rank()] = {};
  receive_[rank()] = {};
  for (const auto& part : send_) bytes_sent_ += static_cast<int64_t>(part.size() * sizeof(float));
  return communicator_.AllToAll(send_, receive_);
}

absl::Status BlockExchange::Agree() {
  ++agreements_;
  const std::string mine = ContentHash(TextOf(options_));
  const size_t floats = (mine.size() + sizeof(float) - 1) / sizeof(float);
  std::vector<float> bits(floats), all(floats * ranks());
  std::memcpy(bits.data(), mine.data(), mine.size());
  TY_RETURN_IF_ERROR(communicator_.AllGather(bits, absl::MakeSpan(all)));
  bytes_sent_ += static_cast<int64_t>(floats * sizeof(float) * (ranks() - 1));
  for (size_t of = 0; of < ranks(); ++of) {
    std::string theirs(mine.size(), '\0');
    std::memcpy(theirs.data(), all.data() + of * floats, mine.size());
    if (theirs == mine) continue;
    return CollectiveMismatch(
        {options_.members[rank()], "agreement", agreements_},
        absl::StrCat("rank ", options_.members[of], " has other buckets or terms: ", theirs,
                     "; expected ", mine, ", as here"));
  }
  return absl::OkStatus();
}

absl::Status BlockExchange::GatherBallots(absl::Span<const double> ballot,
                                          absl::Span<double> ballots) {
  if (ballot.empty()) return absl::OkStatus();
  ballot_bits_.resize(ballot.size() * kFloatsPerDouble);
  ballots_bits_.resize(ballot_bits_.size() * ranks());
  std::memcpy(ballot_bits_.data(), ballot.data(), ballot.size() * sizeof(double));
  bytes_sent_ += static_cast<int64_t>(ballot.size() * sizeof(double) * (ranks() - 1));
  TY_RETURN_IF_ERROR(communicator_.AllGather(ballot_bits_, absl::MakeSpan(ballots_bits_)));
  std::memcpy(ballots.data(), ballots_bits_.data(), ballots.size() * sizeof(double));
  return absl::OkStatus();
}

absl::Status BlockExchange::Reduce(size_t bucket) {
  const bool is_direct = IsDirect(bucket);
  TY_RETURN_IF_ERROR(ExchangeTerms(bucket, is_direct));
  SumTerms(is_direct ? options_.buckets[bucket] : BlockOfRank(bucket, communicator_.rank()));
  if (is_direct || !IsForAll(bucket)) return absl::OkStatus();
  return GatherBucket(bucket, options_.reduction);
}

// In turn k every rank sends its k-th term, so that no rank has to gather its terms first.
absl::Status BlockExchange::ExchangeTerms(size_t bucket, bool is_direct) {
  const Bucket all = options_.buckets[bucket];
  const Bucket own = is_direct ? all : BlockOfRank(bucket, communicator_.rank());
  const auto size = static_cast<size_t>(own.size());
  const std::vector<int>& counts = options_.plan.terms;
  const size_t turns =
      ranks() == 1 ? 0 : static_cast<size_t>(*std::max_element(counts.begin(), counts.end()));
  for (size_t turn = 0; turn < turns; ++turn) {
    size_t place = 0;  // the place of the rank's first term in received_
    for (size_t peer = 0; peer < ranks(); ++peer) {
      send_[peer] = {};
      receive_[peer] = {};
      if (peer == rank()) continue;
      const auto peer_rank = static_cast<int>(peer);
      if (turn < options_.term_slots.size()) {
        send_[peer] = Part(Memory(options_.term_slots[turn]),
                           is_direct ? all : BlockOfRank(bucket, peer_rank));
      }
      const auto terms = static_cast<size_t>(counts[peer]);
      if (turn < terms) {
        receive_[peer] = absl::MakeSpan(received_).subspan((place + turn) * size, size);
      }
      place += terms;
    }
    TY_RETURN_IF_ERROR(Exchange());
  }
  return absl::OkStatus();
}

// Sums the own terms in place, and the others' where they were received.
void BlockExchange::SumTerms(const Bucket& block) {
  const auto size = static_cast<size_t>(block.size());
  terms_.clear();
  const float* received = received_.data();
  for (size_t of = 0; of < ranks(); ++of) {
    for (size_t term = 0; term < static_cast<size_t>(options_.plan.terms[of]); ++term) {
      if (of == rank()) {
        terms_.push_back(Part(Memory(options_.term_slots[term]), block).data());
      } else {
        terms_.push_back(received);
        received += size;
      }
    }
  }
  float* const target = Part(options_.reduction, block).data();
  program_->Run(terms_, size, absl::MakeConstSpan(&target, 1));
}

absl::Status BlockExchange::GatherBucket(size_t bucket, absl::Span<float> values) {
  if (ranks() == 1) return absl::OkStatus();
  const Bucket own = BlockOfRank(bucket, communicator_.rank());
  for (size_t peer = 0; peer < ranks(); ++peer) {
    send_[peer] = Part(values, own);
    receive_[peer] = Part(values, BlockOfRank(bucket, static_cast<int>(peer)));
  }
  return Exchange();
}

int64_t BlockExchange::TakeBytesSent() {
  return std::exchange(bytes_sent_, 0);
}

}  // namespace trainyard::parallel
