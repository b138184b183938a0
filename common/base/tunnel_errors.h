// Names the failures of tunnels to running ranks, with what to do about each.
#pragma once

namespace trainyard::error {

// TUNNEL_LOST: the worker has not come, or its connection broke; `trainyard workers ls` tells
// whether it is there. Begin again.
inline constexpr char kTunnelLost[] = "TUNNEL_LOST";
// TUNNEL_NOT_FOUND: a worker is too late, for its user has gone. Nobody has to do anything.
inline constexpr char kTunnelNotFound[] = "TUNNEL_NOT_FOUND";
// TOO_MANY_TUNNELS: close some of those that are open.
inline constexpr char kTooManyTunnels[] = "TOO_MANY_TUNNELS";
// BAD_TUNNEL_FRAME: client, server and worker are of versions that do not fit; use the same.
inline constexpr char kBadTunnelFrame[] = "BAD_TUNNEL_FRAME";
// TUNNEL_FAILED: a worker has told a failure without a name; the message says more.
inline constexpr char kTunnelFailed[] = "TUNNEL_FAILED";
// RANK_NOT_FOUND: the job has fewer ranks; the message says how many.
inline constexpr char kRankNotFound[] = "RANK_NOT_FOUND";
// RANK_ENDED: the rank does not run any more; `trainyard show` tells the state of its job.
inline constexpr char kRankEnded[] = "RANK_ENDED";
// CANNOT_ENTER: the worker could not go to where the rank is. The message says at which step; the
// one who operates the host can help.
inline constexpr char kCannotEnter[] = "CANNOT_ENTER";
// CANNOT_EXECUTE: the command is not there, or may not be executed, beside the program.
inline constexpr char kCannotExecute[] = "CANNOT_EXECUTE";
// CANNOT_CONNECT: nothing listens on the port of the rank; look at its log.
inline constexpr char kCannotConnect[] = "CANNOT_CONNECT";

}  // namespace trainyard::error
