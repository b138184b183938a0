// Emulates CUB's radix sort. It enqueues as many kernels and fills as CUB 3.0 does for compute
// capability 9.0, and needs as much temporary memory. Until the last of them has run, the temporary
// memory and the outputs hold garbage.
#include <cub/device/device_radix_sort.cuh>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <numeric>
#include <vector>

#include "tests/testing/cuda_on_cpu/append.h"
#include "tests/testing/cuda_on_cpu/machine.h"
#include "tests/testing/cuda_on_cpu/memory.h"

namespace trainyard::cuda_on_cpu {
namespace {

constexpr int kDigitBits = 8;
constexpr size_t kCounterBytes = size_t{sizeof(int32_t)} << kDigitBits;  // of one digit
constexpr int kPairsOfBlock = 256 * 19;
constexpr int kPairsOfTile = 384 * 23;

struct Sort {
  const int32_t* keys;
  int32_t* sorted_keys;
  const int32_t* values;
  int32_t* sorted_values;
  size_t pairs;
  int begin_bit, end_bit;
  void* temporary;

  size_t bytes() const { return pairs * sizeof(int32_t); }
  bool is_of_one_block() const { return pairs <= kPairsOfBlock; }
  size_t digits() const {
    return static_cast<size_t>((end_bit - begin_bit + kDigitBits - 1) / kDigitBits);
  }
};

// Counters of the digits and of the tiles, copies of keys and values between two passes, and the
// tiles' turns, each at a multiple of 256 bytes.
size_t TemporaryBytes(const Sort& sort) {
  constexpr size_t kAlignment = 256;
  if (sort.is_of_one_block()) return 1;
  const size_t tiles = (sort.pairs + kPairsOfTile - 1) / kPairsOfTile;
  const size_t copy = sort.digits() > 1 ? sort.bytes() : 0;
  size_t bytes = kAlignment - 1;
  for (const size_t part : {sort.digits() * kCounterBytes, tiles * kCounterBytes, copy, copy,
                            sort.digits() * sizeof(int32_t)}) {
    bytes += (part + kAlignment - 1) / kAlignment * kAlignment;
  }
  return bytes;
}

void Spoil(const Sort& sort) {
  constexpr int kGarbage = 0x6B;
  std::memset(sort.temporary, kGarbage, TemporaryBytes(sort));
  std::memset(sort.sorted_keys, kGarbage, sort.bytes());
  std::memset(sort.sorted_values, kGarbage, sort.bytes());
}

void Run(const Sort& sort) {
  Spoil(sort);
  const auto key = [&](size_t place) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(sort.keys[place])) &
            ((uint64_t{1} << sort.end_bit) - 1)) >>
           sort.begin_bit;
  };
  std::vector<size_t> order(sort.pairs);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  for (size_t i = 0; i < order.size(); ++i) {
    sort.sorted_keys[i] = sort.keys[order[i]];
    sort.sorted_values[i] = sort.values[order[i]];
  }
}

[[noreturn]] void Refuse(const char* what, const void* array) {
  std::cerr << "CUDA on CPU: cub::DeviceRadixSort::SortPairs is given " << what << ": " << array
            << std::endl;
  std::abort();
}

void Check(const Machine& machine, const Sort& sort) {
  struct Range {
    const void* begin;
    size_t bytes;
  };
  const std::array<Range, 5> ranges = {{{sort.keys, sort.bytes()},
                                        {sort.sorted_keys, sort.bytes()},
                                        {sort.values, sort.bytes()},
                                        {sort.sorted_values, sort.bytes()},
                                        {sort.temporary, TemporaryBytes(sort)}}};
  for (size_t i = 0; i < ranges.size(); ++i) {
    const Range& range = ranges[i];
    MemoryKind kind = MemoryKind::kPageable;
    if (!KindOfRange(machine, range.begin, range.bytes, &kind) || kind == MemoryKind::kPageable) {
      Refuse("an array that is not in the memory of the device", range.begin);
    }
    for (size_t k = 0; k < i; ++k) {
      const auto begin = reinterpret_cast<uintptr_t>(range.begin);
      const auto other = reinterpret_cast<uintptr_t>(ranges[k].begin);
      if (begin < other + ranges[k].bytes && other < begin + range.bytes) {
        Refuse("an array that overlaps another one", range.begin);
      }
    }
  }
}

cudaError_t EnqueueSort(Machine& machine, Lock& lock, const Sort& sort, cudaStream_t handle) {
  CUstream_st* const stream = machine.Resolve(handle);
  if (stream == nullptr || stream->device != &machine.CurrentDevice()) {
    return cudaErrorInvalidResourceHandle;
  }
  Check(machine, sort);
  std::vector<cudaGraphNodeType> before;
  if (!sort.is_of_one_block()) {
    before = {cudaGraphNodeTypeMemset, cudaGraphNodeTypeMemset, cudaGraphNodeTypeKernel,
              cudaGraphNodeTypeKernel, cudaGraphNodeTypeMemset};
    for (size_t digit = 1; digit < sort.digits(); ++digit) {
      before.insert(before.end(), {cudaGraphNodeTypeKernel, cudaGraphNodeTypeMemset});
    }
  }
  for (const cudaGraphNodeType type : before) {
    const cudaError_t error =
        Append(machine, stream, {.type = type, .work = [sort] { Spoil(sort); }}, lock);
    if (error != cudaSuccess) return error;
  }
  return Append(machine, stream, {.type = cudaGraphNodeTypeKernel, .work = [sort] { Run(sort); }},
                lock);
}

}  // namespace
}  // namespace trainyard::cuda_on_cpu

namespace cub {

cudaError_t DeviceRadixSort::SortPairs(void* temporary, size_t& temporary_bytes,
                                       const int32_t* keys, int32_t* sorted_keys,
                                       const int32_t* values, int32_t* sorted_values, int pairs,
                                       int begin_bit, int end_bit, cudaStream_t stream) {
  using trainyard::cuda_on_cpu::Call;
  using trainyard::cuda_on_cpu::Lock;
  using trainyard::cuda_on_cpu::Machine;
  if (pairs < 0 || begin_bit < 0 || begin_bit >= end_bit || end_bit > 32) {
    trainyard::cuda_on_cpu::Refuse("a number of pairs or bits that is out of range, for keys at",
                                   keys);
  }
  const trainyard::cuda_on_cpu::Sort sort = {
      keys,      sorted_keys, values,   sorted_values, static_cast<size_t>(pairs),
      begin_bit, end_bit,     temporary};
  const size_t needed = TemporaryBytes(sort);
  if (temporary == nullptr) {
    temporary_bytes = needed;
    return cudaSuccess;
  }
  if (temporary_bytes < needed) return cudaErrorInvalidValue;
  if (pairs == 0) return cudaSuccess;
  return Call([&](Machine& machine, Lock& lock) {
    return trainyard::cuda_on_cpu::EnqueueSort(machine, lock, sort, stream);
  });
}

}  // namespace cub
