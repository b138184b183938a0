// Implements the rows of bits of the index.
#include "server/core/scheduling/free_index.h"

#include <bit>
#include <utility>

namespace trainyard::core {
namespace {

constexpr uint64_t BitOf(int32_t item) {
  return uint64_t{1} << (static_cast<uint32_t>(item) % 64);
}

}  // namespace

FreeIndex::FreeIndex(std::vector<int32_t> counts, int32_t largest)
    : counts_(std::move(counts)),
      items_with_(static_cast<size_t>(largest) + 1, 0),
      words_((counts_.size() + 63) / 64),
      bits_(items_with_.size() * words_, 0) {
  for (size_t i = 0; i < counts_.size(); ++i) {
    const auto item = static_cast<int32_t>(i);
    BitsOf(item) |= BitOf(item);
    ++items_with_[static_cast<size_t>(counts_[i])];
  }
}

void FreeIndex::Change(int32_t item, int32_t by) {
  int32_t& count = counts_[static_cast<size_t>(item)];
  BitsOf(item) &= ~BitOf(item);
  --items_with_[static_cast<size_t>(count)];
  count += by;
  BitsOf(item) |= BitOf(item);
  ++items_with_[static_cast<size_t>(count)];
}

int32_t FreeIndex::FindInRow(size_t row, int32_t from) const {
  size_t word = static_cast<size_t>(from) / 64;
  uint64_t mask = ~uint64_t{0} << (static_cast<uint32_t>(from) % 64);
  for (; word < words_; ++word, mask = ~uint64_t{0}) {
    const uint64_t bits = bits_[row * words_ + word] & mask;
    if (bits != 0) return static_cast<int32_t>(word * 64) + std::countr_zero(bits);
  }
  return -1;
}

}  // namespace trainyard::core
