#include "worker/engine/backend/cpu/packed_weights.h"

#include <algorithm>
#include <utility>

namespace trainyard::engine::cpu {

dnnl::memory PackedWeights::Get(const std::vector<absl::Span<float>>& parameters,
                                const dnnl::memory::desc& plain, const dnnl::memory::desc& wanted) {
  const bool is_one = parameters.size() == 1;
  if (is_one && plain == wanted) {
    return dnnl::memory(plain, engine_, parameters[0].data());
  }
  for (const std::unique_ptr<Entry>& entry : entries_) {
    const bool is_same =
        entry->parameters.size() == parameters.size() &&
        std::equal(parameters.begin(), parameters.end(), entry->parameters.begin(),
                   [](const auto& a, const auto& b) { return a.data() == b.data(); });
    if (is_same && entry->desc == wanted) {
      return entry->to;
    }
  }
  auto entry = std::make_unique<Entry>();
  entry->parameters = parameters;
  entry->desc = wanted;
  if (!is_one) {
    entry->gathered = AlignedBuffer(static_cast<int64_t>(plain.get_size()), backing_);
  }
  // A memory object clears the padding of what it is given.
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
  entries_.push_back(std::move(entry));
  is_fresh_ = false;
  return entries_.back()->to;
}

void PackedWeights::Refresh(dnnl::stream& stream) {
  if (is_fresh_) {
    return;
  }
  for (const std::unique_ptr<Entry>& entry : entries_) {
    float* to = entry->gathered.as<float>();
    for (const absl::Span<float>& parameter : entry->parameters) {
      if (to != nullptr) {
        to = std::copy(parameter.begin(), parameter.end(), to);
      }
    }
    if (entry->pack) {
      entry->pack.execute(stream, entry->from, entry->to);
    }
  }
  is_fresh_ = true;
}

int64_t PackedWeights::bytes() const {
  int64_t bytes = 0;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    bytes += entry->gathered.bytes() + entry->buffer.bytes();
  }
  return bytes;
}

}  // namespace trainyard::engine::cpu
