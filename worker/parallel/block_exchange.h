// Makes the collectives of one step over a communicator of host memory, one at a time. A
// WireExchange runs them on its thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "worker/parallel/communicator.h"
#include "worker/parallel/gradient_exchange.h"
#include "worker/parallel/sum_program.h"

namespace trainyard::parallel {

// The memory is borrowed for as long as the exchange lives.
struct WireExchangeOptions {
  std::vector<Bucket> buckets;
  int64_t gradient_elements = 0;
  bool is_sharded = false;
  absl::Span<float> reduction;
  // The partial sums, each as large as the reduction.
  std::vector<absl::Span<float>> slots = {};
  absl::Span<float> parameters = {};  // gradient_elements; unused unless sharded
  ExchangePlan plan;
  std::vector<int> term_slots;  // of this rank; -1 is the reduction
  // The global ranks, for errors. If it is empty, they are those of the communicator.
  std::vector<int> members = {};
};

// The exchange. The class is not thread-safe.
class BlockExchange {
 public:
  BlockExchange(Communicator& communicator, WireExchangeOptions options);

  absl::Span<const Bucket> buckets() const { return options_.buckets; }
  bool is_sharded() const { return options_.is_sharded; }
  absl::Span<float> parameters() const { return options_.parameters; }
  // Returns the part of a bucket that `rank` sums, and updates if the exchange is sharded.
  Bucket BlockOfRank(size_t bucket, int rank) const;
  // Returns true if the sums of the bucket go to all ranks.
  bool IsForAll(size_t bucket) const;

  void SetPlan(const ExchangePlan& plan, absl::Span<const int> term_slots);

  // Compares buckets and terms with those of the other ranks. Returns COLLECTIVE_MISMATCH with the
  // name of a rank that has different ones. Takes 1 step.
  absl::Status Agree();
  // Gathers ballots. `ballots` is [world_size, length]. Takes 1 step.
  absl::Status GatherBallots(absl::Span<const double> ballot, absl::Span<double> ballots);
  // Leaves in the reduction the sum of the whole bucket, or of this rank's block. Takes at most as
  // many steps as a rank has terms, and one more if the sums go to all. For two ranks with one term
  // each it takes 1 step.
  absl::Status Reduce(size_t bucket);
  // Each rank sends its block of the bucket to all. `values` has gradient_elements elements. Takes
  // 1 step.
  absl::Status GatherBucket(size_t bucket, absl::Span<float> values);

  // Returns the bytes sent since the last call.
  int64_t TakeBytesSent();

 private:
  size_t ranks() const { return static_cast<size_t>(communicator_.world_size()); }
  size_t rank() const { return static_cast<size_t>(communicator_.rank()); }
  bool IsDirect(size_t bucket) const;
  absl::Span<float> Memory(int slot) const;
  // Sends send_ and receives receive_.
  absl::Status Exchange();
  absl::Status ExchangeTerms(size_t bucket, bool is_direct);
  void SumTerms(const Bucket& block);

  Communicator& communicator_;
  WireExchangeOptions options_;
  std::unique_ptr<SumProgram> program_;
  int64_t agreements_ = 0;
  int64_t bytes_sent_ = 0;
  std::vector<absl::Span<const float>> send_;  // by rank
  std::vector<absl::Span<float>> receive_;     // by rank
  std::vector<const float*> terms_;            // of all ranks, for the block that is summed now
  std::vector<float> received_;
  std::vector<float> ballot_bits_;
  std::vector<float> ballots_bits_;
};

}  // namespace trainyard::parallel
