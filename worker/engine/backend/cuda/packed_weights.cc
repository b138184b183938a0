// Finds what the products of both steps read, and lays the copies out in one block.
#include "worker/engine/backend/cuda/packed_weights.h"

#include <utility>

#include "common/base/status_macros.h"

namespace trainyard::engine::cuda {

std::vector<ValueId> ConvWeightsOf(const Node& node, size_t first) {
  const auto begin = node.inputs.begin() + static_cast<int64_t>(first);
  return {begin, begin + node.conv().weights};
}

std::vector<ValueId> ConvBiasesOf(const Node& node) {
  return {node.inputs.begin() + 1 + node.conv().weights, node.inputs.end()};
}

absl::StatusOr<PackedWeights> PackedWeights::Create(const StepGraph& training,
                                                    const StepGraph& evaluation,
                                                    const ReductionLayout& layout,
                                                    float* parameters, Type type, Backing backing) {
  PackedWeights weights;
  weights.parameters_ = parameters;
  weights.AddCopies(training, type);
  weights.AddCopies(evaluation, type);
  TY_RETURN_IF_ERROR(weights.Lay(layout, parameters, backing));
  return weights;
}

void PackedWeights::AddCopies(const StepGraph& step, Type type) {
  for (const Node& node : step.graph.nodes) {
    if (node.op == OpKind::kConv2d) {
      const std::vector<ValueId> weights = ConvWeightsOf(node);
      const Shape& first = step.graph.value(weights[0]).shape;
      int64_t channels = 0;
      for (const ValueId weight : weights) channels += step.graph.value(weight).shape[0];
      const bool pads = node.conv().groups == 1;
      WeightCopy copy{.inner = first[1], .stride = first[1], .type = type};
      if (pads) copy.stride = PaddedChannels(first[1], type);
      const int64_t rows = (pads ? PaddedChannels(channels, type) : channels) * first[2] * first[3];
      const bool is_itself = type == Type::kF32 && weights.size() == 1 &&
                             copy.stride == copy.inner && rows == ElementCount(first) / first[1];
      copy.bytes = is_itself ? 0 : rows * copy.stride * SizeOf(type);
      copies_.emplace(weights, copy);
      const std::vector<ValueId> biases = ConvBiasesOf(node);
      if (!biases.empty()) {
        // A single bias is followed by zeros, up to the next multiple of kReductionAlignment.
        copies_.emplace(
            biases,
            WeightCopy{.inner = channels,
                       .stride = channels,
                       .bytes = biases.size() == 1 ? 0 : AlignUp(channels) * SizeOf(Type::kF32),
                       .type = Type::kF32});
      }
    } else if (node.op == OpKind::kLinear) {
      const Shape& shape = step.graph.value(node.inputs[1]).shape;
      WeightCopy copy{.inner = shape[1], .stride = PaddedChannels(shape[1], type), .type = type};
      const bool is_itself = type == Type::kF32 && copy.stride == copy.inner;
      copy.bytes = is_itself ? 0 : shape[0] * copy.stride * SizeOf(type);
      copies_.emplace(std::vector{node.inputs[1]}, copy);
      if (type == Type::kF32 || node.inputs.size() < 3) continue;
      // A product with an output of 16 bits adds a bias of that type. Logits in f32 read the
      // parameter.
      const int64_t channels = ElementCount(step.graph.value(node.inputs[2]).shape);
      copies_.emplace(std::vector{node.inputs[2]}, WeightCopy{.inner = channels,
                                                              .stride = channels,
                                                              .bytes = channels * SizeOf(type),
                                                              .type = type});
    }
  }
}

absl::Status PackedWeights::Lay(const ReductionLayout& layout, float* parameters, Backing backing) {
  int64_t bytes = 0;
  for (const auto& [ids, copy] : copies_) bytes += AlignUpDevice(copy.bytes);
  TY_ASSIGN_OR_RETURN(memory_, DeviceBuffer::Create(bytes, backing));
  std::vector<PackedWeight> first;
  std::vector<PackedWeight> second;
  std::byte* at = memory_.data();
  for (auto& [ids, copy] : copies_) {
    if (copy.bytes == 0) {
      copy.data = parameters + layout.entry(ids[0]).offset;
      continue;
    }
    copy.data = at;
    int64_t row = 0;
    for (const ValueId id : ids) {
      const ReductionEntry& entry = layout.entry(id);
      // A bias is a single row, so it begins where the one before it ended.
      const bool is_bias =
          copy.type == Type::kF32 && copy.inner == copy.stride && entry.count < copy.inner;
      const int64_t inner = is_bias ? entry.count : copy.inner;
      const PackedWeight place = {entry.offset,
                                  entry.count,
                                  inner,
                                  is_bias ? inner : copy.stride,
                                  at + row * SizeOf(copy.type),
                                  copy.type};
      row += entry.count / inner * place.stride;
      const bool is_first =
          place_of_offset_.emplace(entry.offset, static_cast<int32_t>(first.size())).second;
      (is_first ? first : second).push_back(place);
    }
    at += AlignUpDevice(copy.bytes);
  }
  second_ = static_cast<int64_t>(first.size());
  first.insert(first.end(), second.begin(), second.end());
  place_count_ = static_cast<int64_t>(first.size());
  chunks_ = {0};
  for (const PackedWeight& place : first) {
    chunks_.push_back(chunks_.back() +
                      static_cast<int32_t>((place.count + kPackChunk - 1) / kPackChunk));
  }
  const auto places_bytes = static_cast<int64_t>(first.size() * sizeof(PackedWeight));
  const auto chunks_bytes = static_cast<int64_t>(chunks_.size() * sizeof(int32_t));
  TY_ASSIGN_OR_RETURN(places_, DeviceBuffer::Create(places_bytes, backing));
  TY_ASSIGN_OR_RETURN(first_chunks_, DeviceBuffer::Create(chunks_bytes, backing));
  if (backing == Backing::kAddresses || first.empty()) return absl::OkStatus();
  TY_RETURN_IF_ERROR(
      CopyToDevice(places_.data(), first.data(), places_bytes, "copying places of weights"));
  return CopyToDevice(first_chunks_.data(), chunks_.data(), chunks_bytes,
                      "copying places of weights");
}

void PackedWeights::Refresh(int64_t first, cudaStream_t stream) const {
  if (first == place_count_) return;
  // The table counts chunks from the first place of a launch, so a later launch has a table of its
  // own.
  PackWeights(parameters_, places_.as<PackedWeight>() + first, first_chunks_.as<int32_t>() + first,
              place_count_ - first, chunks_.back() - chunks_[static_cast<size_t>(first)], stream);
}

void PackedWeights::Refresh(cudaStream_t stream) const {
  Refresh(0, stream);
}

void PackedWeights::RefreshSecond(cudaStream_t stream) const {
  Refresh(second_, stream);
}

}  // namespace trainyard::engine::cuda
