// States the limits of tunnels, each with its reason.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace trainyard::rpc {

// A tunnel holds one frame of each direction. Both ends send at most 64 KiB in one.
inline constexpr size_t kTunnelFrameBytesMax = size_t{256} << 10;
// A user's notebook has some ten connections at a time. It is half of what a worker has, so that
// one user cannot keep the others of a worker out.
inline constexpr size_t kTunnelsOfUserMax = 64;
// Each takes two threads of the worker.
inline constexpr size_t kTunnelsOfWorkerMax = 128;
inline constexpr size_t kTunnelsMax = 1000;
// Streams of workers that have not said yet which tunnel they serve. A worker says so at once. One
// client may have as many as there are tunnels of a user, so that no other is kept out.
inline constexpr size_t kUnclaimedStreamsOfClientMax = 64;
inline constexpr size_t kUnclaimedStreamsMax = 1024;
// A worker that is there is asked at once, and comes within some milliseconds.
inline constexpr absl::Duration kTunnelWait = absl::Seconds(10);
// The words of a command. The kernel takes 128 KiB for one word.
inline constexpr int kCommandWordsMax = 1024;
inline constexpr size_t kCommandBytesMax = size_t{64} << 10;
inline constexpr size_t kTermBytesMax = 64;
inline constexpr int32_t kTerminalSizeMax = 10'000;
inline constexpr int32_t kSignalMax = 64;
// A connection to the same port is noted in the audit log once in this time, for a browser makes
// hundreds of them.
inline constexpr absl::Duration kForwardAuditInterval = absl::Minutes(10);
inline constexpr size_t kForwardsRememberedMax = 4096;

}  // namespace trainyard::rpc
