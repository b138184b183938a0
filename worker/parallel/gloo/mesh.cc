// Connects pairs one by one, so that a failure can name the peer and its address.
#include "worker/parallel/gloo/mesh.h"

#include <netdb.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <exception>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/duration.h"
#include "common/base/env.h"
#include "gloo/common/error.h"
#include "gloo/transport/context.h"
#include "gloo/transport/pair.h"
#include "gloo/transport/tcp/address.h"
#include "worker/parallel/collective.h"

namespace trainyard::parallel {
namespace {

using gloo::transport::tcp::Address;

// Gloo waits five times its timeout for a connection.
constexpr int kGlooConnectTimeouts = 5;

// A context whose pairs are made and connected here.
class MeshContext : public gloo::Context {
 public:
  explicit MeshContext(const MeshOptions& options)
      : gloo::Context(options.membership.rank, options.membership.size()) {
    setTimeout(std::chrono::milliseconds(
        std::max<int64_t>(1, absl::ToInt64Milliseconds(options.timeout / kGlooConnectTimeouts))));
    device_ = options.device;
    transportContext_ = device_->createContext(rank, size);
    transportContext_->setTimeout(getTimeout());
  }

  // Listens for the peer, at an address that only this peer uses.
  std::vector<char> Listen(int peer) {
    return transportContext_->createPair(peer)->address().bytes();
  }

  void Connect(int peer, const std::vector<char>& address) {
    transportContext_->getPair(peer)->connect(address);
  }
};

// Returns "10.1.0.3:41234" or "[fd00::3]:41234", or an empty text if the bytes are not an address.
std::string HostAndPort(const std::vector<char>& bytes) {
  const Address address(bytes);
  const sockaddr_storage& socket = address.getSockaddr();
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  const size_t size = socket.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&socket), static_cast<socklen_t>(size),
                  host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "";
  }
  if (socket.ss_family == AF_INET6) return absl::StrCat("[", host.data(), "]:", port.data());
  return absl::StrCat(host.data(), ":", port.data());
}

// Returns "10.1.0.3 on worker b".
std::string Place(absl::string_view address, absl::string_view worker) {
  return worker.empty() ? std::string(address) : absl::StrCat(address, " on worker ", worker);
}

// Returns the same place with its port.
std::string WithPort(const std::vector<char>& place, const std::string& host_and_port) {
  const absl::string_view text(place.data(), place.size());
  const size_t end = std::min(text.find(' '), text.size());
  return absl::StrCat(host_and_port, text.substr(end));
}

std::string PlaceKey(int rank) {
  return absl::StrCat("address.", rank);
}

// Returns the address that `peer` has written for this rank.
std::vector<char> AddressFor(const std::vector<char>& all, int rank, int peer, size_t size) {
  const auto index = static_cast<size_t>(rank < peer ? rank : rank - 1);
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(index * size);
  return {first, first + static_cast<std::ptrdiff_t>(size)};
}

absl::Status WithSuffix(const absl::Status& status, absl::string_view suffix) {
  absl::Status result(status.code(), absl::StrCat(status.message(), suffix));
  status.ForEachPayload([&result](absl::string_view type, const absl::Cord& payload) {
    result.SetPayload(type, payload);
  });
  return result;
}

absl::Status NotConnected(const Membership& membership, int peer,
                          const std::vector<std::string>& places, absl::Duration waited,
                          absl::string_view cause) {
  const absl::Status lost = PeerLost(
      {membership.Global(membership.rank), "connect", 0}, membership.Global(peer),
      absl::StrCat("no connection after ", DurationText(absl::Floor(waited, absl::Milliseconds(1))),
                   ": ", WithoutSource(cause)));
  const absl::Status placed = WithPlaces(lost, places, membership, peer);
  return WithSuffix(placed, "; is a firewall between them?");
}

}  // namespace

std::string WithoutSource(absl::string_view message) {
  const size_t source_end = message.find("] ");
  if (absl::StartsWith(message, "[") && source_end != absl::string_view::npos) {
    message.remove_prefix(source_end + 2);
  }
  const size_t begin = message.find(" [");
  const size_t port = message.find("]:", begin);
  if (begin == absl::string_view::npos || port == absl::string_view::npos) {
    return std::string(message);
  }
  const size_t end = std::min(message.find_first_not_of("0123456789", port + 2), message.size());
  return absl::StrCat(message.substr(0, begin), message.substr(end));
}

absl::Status WithPlaces(const absl::Status& status, const std::vector<std::string>& places,
                        const Membership& membership, int peer) {
  const auto place = [&places](int of) { return places[static_cast<size_t>(of)]; };
  if (status.ok() || peer < 0 || place(peer).empty()) return status;
  return WithSuffix(
      status, absl::StrCat("; rank ", membership.Global(peer), " is at ", place(peer), ", rank ",
                           membership.Global(membership.rank), " at ", place(membership.rank)));
}

absl::StatusOr<Mesh> ConnectMesh(const MeshOptions& options, RunDirStore& store) {
  const Membership& membership = options.membership;
  const int rank = membership.rank;
  const auto context = std::make_shared<MeshContext>(options);
  Mesh mesh{.context = context, .places = std::vector<std::string>(membership.members.size())};
  std::string& own_place = mesh.places[static_cast<size_t>(rank)];
  own_place = Place(options.address, options.worker);
  std::vector<char> listening;
  std::vector<std::string> peers;
  for (int peer = 0; peer < membership.size(); ++peer) {
    if (peer == rank) continue;
    const std::vector<char> address = context->Listen(peer);
    listening.insert(listening.end(), address.begin(), address.end());
    peers.push_back(absl::StrCat(peer));
  }
  // The place is written first, so that a rank that sees the addresses also sees the place.
  store.set(PlaceKey(membership.Global(rank)), {own_place.begin(), own_place.end()});
  store.set(absl::StrCat(rank), listening);
  store.wait(peers);
  for (int peer = 0; peer < membership.size(); ++peer) {
    if (peer == rank) continue;
    const std::vector<char> all = store.get(absl::StrCat(peer));
    if (all.size() != listening.size()) {
      throw gloo::IoException(absl::StrCat(
          "the rendezvous key of rank ", membership.Global(peer), " has ", all.size(),
          " bytes where ours has ", listening.size(), "; the programs are of different versions"));
    }
    const std::vector<char> address = AddressFor(all, rank, peer, all.size() / peers.size());
    mesh.places[static_cast<size_t>(peer)] =
        WithPort(store.get(PlaceKey(membership.Global(peer))), HostAndPort(address));
    const absl::Duration start = Clock::Real()->Uptime();
    try {
      context->Connect(peer, address);
    } catch (const std::exception& exception) {
      return NotConnected(membership, peer, mesh.places, Clock::Real()->Uptime() - start,
                          exception.what());
    }
  }
  return mesh;
}

}  // namespace trainyard::parallel
