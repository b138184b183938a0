// The limits of the emulated device: the numbers of compute capability 9.0 (CUDA C++ Programming
// Guide, "Compute Capabilities").
#pragma once

namespace trainyard::cuda_on_cpu {

inline constexpr int kMaxBlockThreads = 1024;
inline constexpr int kMaxBlockX = 1024;
inline constexpr int kMaxBlockY = 1024;
inline constexpr int kMaxBlockZ = 64;
inline constexpr int kMaxGridX = 2147483647;
inline constexpr int kMaxGridYZ = 65535;
inline constexpr int kSharedBytes = 48 * 1024;
inline constexpr int kSharedBytesOptIn = 227 * 1024;
inline constexpr int kSharedBytesOfMultiprocessor = 228 * 1024;
inline constexpr int kSharedBytesReserved = 1024;
inline constexpr int kMultiprocessors = 132;
inline constexpr int kMaxMultiprocessorThreads = 2048;
inline constexpr int kMaxMultiprocessorBlocks = 32;
inline constexpr int kRegisters = 65536;
inline constexpr int kCacheBytes = 50 * 1024 * 1024;

}  // namespace trainyard::cuda_on_cpu
