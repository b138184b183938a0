// Defines what a test and the library that it loads into a process (preload.cc) share: a file that
// both map. The test says in it which system call fails and how; the library counts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace trainyard::testing {

// The variable that names the file.
inline constexpr char kShimVariable[] = "TRAINYARD_FAULT_SHIM";

// Kinds of system calls, as bits.
inline constexpr uint32_t kShimSync = 1;     // fsync, fdatasync
inline constexpr uint32_t kShimWrite = 2;    // write, pwrite, writev
inline constexpr uint32_t kShimRename = 4;   // rename; the path is the new one
inline constexpr uint32_t kShimUnlink = 8;   // unlink
inline constexpr uint32_t kShimSend = 16;    // sendmsg
inline constexpr uint32_t kShimCreate = 32;  // open with O_CREAT, mkdir
inline constexpr uint32_t kShimCut = 64;     // ftruncate

// Actions besides the numbers of errors, with which a call fails.
inline constexpr int32_t kShimKill = 0;       // SIGKILL of the process before the call
inline constexpr int32_t kShimKillHalf = -1;  // SIGKILL after half of the bytes are written

struct ShimControl {
  static constexpr size_t kPathBytes = 256;

  // Calls that match; 0 while nothing is to happen. It is written last.
  std::atomic<uint32_t> calls;
  std::atomic<int32_t> action;
  // The matching calls that still pass before one is struck.
  std::atomic<int64_t> passing;
  // The calls in a row that are struck.
  std::atomic<int64_t> times;
  // The number of calls that were struck since the file was made.
  std::atomic<int64_t> struck;
  // The number of matching calls since `calls` was set.
  std::atomic<int64_t> seen;
  // The time that is added to the wall clock.
  std::atomic<int64_t> clock_offset_ns;
  // The number of syncs that followed a sync of the same file which had failed, although nothing
  // was written in between. Linux lets them succeed, whatever has reached the disk.
  std::atomic<int64_t> trusted;
  // A part of the path of the file, with its zero. Sockets are called "socket:[NUMBER]".
  char path[kPathBytes];
};

static_assert(std::atomic<int64_t>::is_always_lock_free, "two processes share these");

}  // namespace trainyard::testing
