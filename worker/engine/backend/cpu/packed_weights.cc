#include "worker/engine/backend/cpu/packed_weights.h"

#include <utility>

namespace trainyard::engine::cpu {

dnnl::memory PackedWeights::Get(float* parameter, const dnnl::memory::desc& plain,
                                const dnnl::memory::desc& wanted) {
  if (plain == wanted) {
    return dnnl::memory(plain, engine_, parameter);
  }
  for (const std::unique_ptr<Entry>& entry : entries_) {
    if (entry->parameter == parameter && entry->desc == wanted) {
      return entry->to;
    }
  }
  auto entry = std::make_unique<Entry>();
  entry->parameter = parameter;
  entry->desc = wanted;
  entry->buffer = AlignedBuffer(static_cast<int64_t>(wanted.get_size()));
  entry->from = dnnl::memory(plain, engine_, parameter);
  entry->to = dnnl::memory(wanted, engine_, entry->buffer.data());
  entry->pack = dnnl::reorder(entry->from, entry->to);
  entries_.push_back(std::move(entry));
  is_fresh_ = false;
  return entries_.back()->to;
}

void PackedWeights::Refresh(dnnl::stream& stream) {
  if (is_fresh_) {
    return;
  }
  for (const std::unique_ptr<Entry>& entry : entries_) {
    entry->pack.execute(stream, entry->from, entry->to);
  }
  is_fresh_ = true;
}

int64_t PackedWeights::bytes() const {
  int64_t bytes = 0;
  for (const std::unique_ptr<Entry>& entry : entries_) {
    bytes += entry->buffer.bytes();
  }
  return bytes;
}

}  // namespace trainyard::engine::cpu
