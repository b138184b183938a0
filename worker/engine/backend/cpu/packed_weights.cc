// Packs parameters into the formats that primitives need, and packs them again after an update.
#include "worker/engine/backend/cpu/packed_weights.h"

#include <algorithm>
#include <utility>

namespace trainyard::engine::cpu {

dnnl::memory PackedWeights::Get(const std::vector<absl::Span<float>>& parameters,
                                const dnnl::memory::desc& plain, const dnnl::memory::desc& wanted,
                                std::vector<size_t>& used) {
  const bool is_one = parameters.size() == 1;
  if (is_one && plain == wanted) {
    return dnnl::memory(plain, engine_, parameters[0].data());
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = *entries_[i];
    const bool is_same =
        entry.kernels == nullptr && entry.parameters.size() == parameters.size() &&
        std::equal(parameters.begin(), parameters.end(), entry.parameters.begin(),
                   [](const auto& a, const auto& b) { return a.data() == b.data(); });
    if (is_same && entry.desc == wanted) {
      used.push_back(i);
      return entry.to;
    }
  }
  auto entry = std::make_unique<Entry>();
  entry->parameters = parameters;
  entry->desc = wanted;
  if (!is_one) {
    entry->gathered = AlignedBuffer(static_cast<int64_t>(plain.get_size()), backing_);
  }
  // A memory object clears the padding of the memory that it gets.
  const auto memory = [this](const dnnl::memory::desc& desc, std::byte* data) {
    return dnnl::memory(desc, engine_, backing_ == Backing::kMemory ? data : nullptr);
  };
  entry->from = is_one ? dnnl::memory(plain, engine_, parameters[0].data())
                       : memory(plain, entry->gathered.data());
  entry->to = entry->from;
  if (plain != wanted) {
    entry->buffer = AlignedBuffer(static_cast<int64_t>(wanted.get_size()), backing_);
    entry->to = memory(wanted, entry->buffer.data());
    entry->pack = dnnl::reorder(entry->from, entry->to);
  }
  used.push_back(entries_.size());
  entries_.push_back(std::move(entry));
  return entries_.back()->to;
}

const float* PackedWeights::Transformed(absl::Span<float> weights, const WinogradShape& shape,
                                        bool turned, const WinogradKernels& kernels,
                                        std::vector<size_t>& used) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = *entries_[i];
    if (entry.kernels != nullptr && entry.parameters[0].data() == weights.data() &&
        entry.turned == turned) {
      used.push_back(i);
      return entry.buffer.as<float>();
    }
  }
  auto entry = std::make_unique<Entry>();
  entry->parameters = {weights};
  entry->buffer = AlignedBuffer(shape.products() * int64_t{sizeof(float)}, backing_);
  entry->kernels = &kernels;
  entry->shape = shape;
  entry->turned = turned;
  used.push_back(entries_.size());
  entries_.push_back(std::move(entry));
  return entries_.back()->buffer.as<float>();
}

void PackedWeights::Refresh(const std::vector<size_t>& used, dnnl::stream& stream) {
  for (const size_t number : used) {
    Entry& entry = *entries_[number];
    if (entry.version == version_) {
      continue;
    }
    float* to = entry.gathered.as<float>();
    for (const absl::Span<float>& parameter : entry.parameters) {
      if (to != nullptr) {
        to = std::copy(parameter.begin(), parameter.end(), to);
      }
    }
    if (entry.pack) {
      entry.pack.execute(stream, entry.from, entry.to);
    }
    if (entry.kernels != nullptr) {
      entry.kernels->transform_weights(entry.shape, entry.turned, entry.parameters[0].data(),
                                       entry.buffer.as<float>());
    }
    entry.version = version_;
  }
}

int64_t PackedWeights::bytes() const {
  int64_t bytes = 0;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    bytes += entry->gathered.bytes() + entry->buffer.bytes();
  }
  return bytes;
}

}  // namespace trainyard::engine::cpu
