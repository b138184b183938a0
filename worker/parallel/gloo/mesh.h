// Connects each rank of a gang with each other one over TCP, and knows where they are. Gloo's own
// rendezvous tells neither which peer did not answer nor at which address. Only this folder uses
// it, since it includes Gloo.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gloo/context.h"
#include "gloo/transport/device.h"
#include "worker/parallel/gloo/run_dir_store.h"
#include "worker/parallel/group.h"

namespace trainyard::parallel {

struct MeshOptions {
  Membership membership;
  std::shared_ptr<gloo::transport::Device> device;
  std::string address;  // the address that the device listens on
  std::string worker;   // this host's name in messages; may be empty
  absl::Duration timeout;
};

struct Mesh {
  std::shared_ptr<gloo::Context> context;
  // The places by rank in the group, for messages: "10.1.0.3:41234 on worker b". This rank's own
  // has no port.
  std::vector<std::string> places;
};

// Uses these keys in the store, with global ranks: `<rank>` has what Gloo calls addresses, one for
// each peer in ascending order, and `address.<rank>` has the place for people. Throws Gloo's
// exceptions if the store does. Returns UNAVAILABLE (PEER_LOST), naming the peer and both
// addresses, if a rank is there but cannot be connected.
absl::StatusOr<Mesh> ConnectMesh(const MeshOptions& options, RunDirStore& store);

// Appends the places of this rank and of `peer`, a rank in the group, to the message of `status`.
// Code and payloads stay.
absl::Status WithPlaces(const absl::Status& status, const std::vector<std::string>& places,
                        const Membership& membership, int peer);

// Returns Gloo's message without the "[file.cc:123] " before it, which does not help users, and
// without the " [10.1.0.3]:8580" in it, whose port has its bytes in the wrong order.
std::string WithoutSource(absl::string_view message);

}  // namespace trainyard::parallel
