// Builds the tables of chunks and parameters on the device, and enqueues the kernels of the update.
#include "worker/engine/backend/cuda/updater.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace trainyard::engine::cuda {
namespace {

// Lays out tables one after the other, in host memory and at the addresses that they will have on
// the device.
class TableBuilder {
 public:
  template <class T>
  int64_t Append(const std::vector<T>& table) {
    const auto offset = static_cast<size_t>(AlignUpDevice(static_cast<int64_t>(bytes_.size())));
    bytes_.resize(offset + table.size() * sizeof(T));
    if (!table.empty()) std::memcpy(bytes_.data() + offset, table.data(), table.size() * sizeof(T));
    return static_cast<int64_t>(offset);
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

std::vector<RunningSegment> RunningSegments(const StepGraph& training,
                                            const ReductionLayout& layout) {
  std::vector<RunningSegment> running;
  for (const BatchStatistics& statistics : training.statistics) {
    for (const ValueId target : {statistics.running_mean, statistics.running_variance}) {
      const ReductionEntry& entry = layout.entry(target);
      running.push_back({entry.offset - layout.gradient_elements, entry.count,
                         static_cast<float>(statistics.momentum)});
    }
  }
  return running;
}

}  // namespace

absl::StatusOr<Updater> Updater::Create(const OptimizerSpec& spec, const StateTable& table,
                                        const StepGraph& training, const ReductionLayout& layout,
                                        const PackedWeights& weights, const UpdaterOptions& options,
                                        Backing backing) {
  Updater updater;
  updater.spec_ = spec;
  updater.layout_ = layout;
  // Whoever needs all gradients updates everything, and so needs all slots.
  const bool updates_ranges = IsElementwise(spec) && !options.scales_loss;
  updater.owned_ = OwnedSlots(updates_ranges ? options.owned : absl::Span<const ElementRange>(),
                              layout.gradient_elements);
  updater.slot_count_ = static_cast<int64_t>(SlotNames(spec).size());
  updater.counts_steps_ = table.step_offset >= 0;
  const auto floats = [backing](int64_t count) {
    return DeviceBuffer::Create(count * int64_t{sizeof(float)}, backing);
  };
  TY_ASSIGN_OR_RETURN(updater.slots_, floats(updater.slot_count_ * updater.owned_.stride() +
                                             (updater.counts_steps_ ? 1 : 0)));
  TY_ASSIGN_OR_RETURN(updater.averages_, floats(table.average_elements));
  if (options.scales_loss) {
    TY_ASSIGN_OR_RETURN(updater.loss_scale_, DeviceBuffer::Create(sizeof(LossScale), backing));
    const LossScale start = {.scale = kLossScaleStart, .good_steps = 0};
    if (backing == Backing::kMemory) {
      TY_RETURN_IF_ERROR(
          CopyToDevice(updater.loss_scale_.data(), &start, sizeof start, "setting the loss scale"));
    }
  }
  TY_RETURN_IF_ERROR(updater.FillTables(table, training, layout, weights, backing));
  TY_ASSIGN_OR_RETURN(updater.workspace_,
                      DeviceBuffer::Create(UpdateWorkspace(spec, updater.tables_.segment_count,
                                                           updater.tables_.chunk_count),
                                           backing));
  return updater;
}

absl::Status Updater::FillTables(const StateTable& table, const StepGraph& training,
                                 const ReductionLayout& layout, const PackedWeights& weights,
                                 Backing backing) {
  std::vector<UpdateSegment> segments;
  std::vector<UpdateChunk> chunks;
  for (const Segment& segment : table.segments) {
    UpdateSegment mine = {.offset = segment.offset,
                          .count = segment.count,
                          .is_excluded = segment.is_bias_or_norm && !spec_.decay_bias_and_norm,
                          .first_chunk = static_cast<int32_t>(chunks.size())};
    const auto packed = weights.place_of_offset().find(segment.offset);
    if (packed != weights.place_of_offset().end()) mine.packed = packed->second;
    for (int64_t begin = 0; begin < segment.count; begin += kUpdateChunk) {
      chunks.push_back({static_cast<int32_t>(segments.size()),
                        static_cast<int32_t>(std::min(kUpdateChunk, segment.count - begin)),
                        segment.offset + begin});
    }
    mine.chunks = static_cast<int32_t>(chunks.size()) - mine.first_chunk;
    segments.push_back(mine);
  }
  for (const UpdateChunk& chunk : chunks) chunk_offsets_.push_back(chunk.offset);
  const std::vector<RunningSegment> running = RunningSegments(training, layout);
  TableBuilder builder;
  const int64_t segments_at = builder.Append(segments);
  const int64_t chunks_at = builder.Append(chunks);
  const int64_t running_at = builder.Append(running);
  const auto bytes = static_cast<int64_t>(builder.bytes().size());
  TY_ASSIGN_OR_RETURN(tables_memory_, DeviceBuffer::Create(bytes, backing));
  if (backing == Backing::kMemory) {
    TY_RETURN_IF_ERROR(CopyToDevice(tables_memory_.data(), builder.bytes().data(), bytes,
                                    "copying the optimizer's tables"));
  }
  std::byte* const base = tables_memory_.data();
  tables_ = {.segments = reinterpret_cast<const UpdateSegment*>(base + segments_at),
             .segment_count = static_cast<int64_t>(segments.size()),
             .chunks = reinterpret_cast<const UpdateChunk*>(base + chunks_at),
             .chunk_count = static_cast<int64_t>(chunks.size()),
             .packed = weights.places(),
             .running = reinterpret_cast<const RunningSegment*>(base + running_at),
             .running_count = static_cast<int64_t>(running.size())};
  return absl::OkStatus();
}

UpdateMemory Updater::Memory(float* parameters, float* statistics, float* reduction,
                             const StepControl* control, const StepResults& results) const {
  UpdateMemory memory;
  memory.parameters = parameters;
  memory.gradients = reduction;
  memory.gradient_elements = layout_.gradient_elements;
  memory.slots = slots();
  memory.slot_stride = owned_.stride();
  memory.step_count = step_count();
  memory.averages = averages();
  memory.running = statistics;
  memory.statistics = reduction + layout_.gradient_elements;
  memory.statistic_elements = layout_.statistic_elements;
  memory.loss = reduction + layout_.loss_offset;
  memory.correct = reduction + layout_.correct_offset;
  memory.loss_scale = loss_scale();
  memory.results = results;
  memory.control = control;
  memory.workspace = workspace_.data();
  return memory;
}

void Updater::Enqueue(float* parameters, float* statistics, float* reduction,
                      const StepControl* control, const StepResults& results,
                      const PackedWeights& weights, cudaStream_t stream) const {
  TY_CHECK(owned_.is_whole());
  Update(spec_, tables_, Memory(parameters, statistics, reduction, control, results), stream);
  weights.RefreshSecond(stream);
}

CallWork Updater::Work(const PackedWeights& weights) const {
  const bool scales_loss = loss_scale() != nullptr;
  const auto parameters = static_cast<double>(layout_.gradient_elements * SizeOf(Type::kF32));
  // Parameters, slots and averages are read and written; gradients are read and cleared.
  const double bytes =
      4 * parameters +
      static_cast<double>(2 * (slots_.bytes() + averages_.bytes()) + weights.copied_bytes());
  const int64_t kernels = UpdateKernels(spec_, scales_loss);
  // A survey reads the gradients; with LARS, the parameters too. The second launch of LAMB reads
  // the parameters and both slots again.
  const bool is_lamb = spec_.rule == OptimizerSpec::Rule::kLamb;
  const bool is_lars = spec_.rule == OptimizerSpec::Rule::kLars;
  const bool has_survey = kernels > (is_lamb ? 2 : 1);
  const double more_bytes = parameters * ((has_survey ? is_lars ? 2 : 1 : 0) + (is_lamb ? 3 : 0));
  return {.name = "update",
          .op = "update",
          .kernels = kernels + (weights.has_second_copies() ? 1 : 0),
          .bytes = bytes,
          .more_bytes = more_bytes};
}

bool Updater::updates_ranges() const {
  return IsElementwise(spec_) && loss_scale() == nullptr;
}

void Updater::EnqueueRange(int64_t begin, int64_t end, float* parameters, float* reduction,
                           const StepControl* control, cudaStream_t stream) const {
  // The launch covers the chunks from the one that holds `begin`, or the first one after it, up to
  // the first one at `end`.
  const auto after = std::upper_bound(chunk_offsets_.begin(), chunk_offsets_.end(), begin);
  const auto first = after == chunk_offsets_.begin() ? after : after - 1;
  const auto last = std::lower_bound(first, chunk_offsets_.end(), end);
  UpdateMemory memory = Memory(parameters, nullptr, reduction, control, {});
  const OwnedSlots::Part& part = owned_.PartOf(begin, end);
  memory.slots += part.place - part.begin;
  UpdatePart(spec_, tables_, memory,
             {.first_chunk = first - chunk_offsets_.begin(),
              .chunks = last - first,
              .begin = begin,
              .end = end},
             stream);
}

void Updater::EnqueueEnd(float* parameters, float* statistics, float* reduction,
                         const StepControl* control, const StepResults& results,
                         const PackedWeights& weights, cudaStream_t stream) const {
  FinishParts(spec_, tables_, Memory(parameters, statistics, reduction, control, results), stream);
  weights.RefreshSecond(stream);
}

void Updater::ExchangeAverages(float* parameters, cudaStream_t stream) const {
  Exchange(parameters, averages(), layout_.gradient_elements, stream);
}

}  // namespace trainyard::engine::cuda
