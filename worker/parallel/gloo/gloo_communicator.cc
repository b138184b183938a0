// Implements collectives over Gloo's pairs. Every rank sends to every other at once, so that a
// collective takes one or two steps.
#include "worker/parallel/gloo/gloo_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/interfaces.h"
#include "common/base/status_macros.h"
#include "gloo/common/error.h"
#include "gloo/context.h"
#include "gloo/transport/tcp/device.h"
#include "worker/parallel/collective.h"
#include "worker/parallel/gloo/mesh.h"
#include "worker/parallel/gloo/peer_watch.h"
#include "worker/parallel/gloo/run_dir_store.h"

namespace trainyard::parallel {
namespace {

using gloo::transport::UnboundBuffer;

std::chrono::milliseconds Milliseconds(absl::Duration duration) {
  return std::chrono::milliseconds(std::max<int64_t>(1, absl::ToInt64Milliseconds(duration)));
}

// Runs the point-to-point transfers of one step of a collective. All are posted and then waited
// for, with one buffer for each peer, so that a failure names the peer.
class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(Mesh mesh, Membership membership, absl::Duration timeout)
      : context_(std::move(mesh.context)),
        places_(std::move(mesh.places)),
        membership_(std::move(membership)),
        timeout_(timeout),
        messages_sent_(membership_.members.size()),
        messages_received_(membership_.members.size()),
        watch_(*context_) {}

  int rank() const override { return context_->rank; }
  int world_size() const override { return context_->size; }
  void set_timeout(absl::Duration timeout) override { timeout_ = timeout; }

  // Two ranks exchange everything: n floats each way in 1 step, where a ring would take 2 steps for
  // the same bytes. With more ranks, every rank sends block j to rank j, sums its own block in rank
  // order and sends the sum to all: 2 steps, 2(r-1)/r n floats each way.
  absl::Status AllReduce(absl::Span<float> values) override {
    Begin("all_reduce", values.size());
    if (world_size() == 1 || values.empty()) return absl::OkStatus();
    if (world_size() == 2) {
      received_.resize(values.size());
      const int peer = 1 - rank();
      TY_RETURN_IF_ERROR(Exchange([&](int) { return values; },
                                  [&](int) { return absl::MakeSpan(received_); }, peer));
      // a + b rounds like b + a, so both ranks get the same bits.
      AddTo(values.data(), received_.data(), values.size());
      return absl::OkStatus();
    }
    const auto block_of = [&](int of) {
      const Block block = BlockOf(values.size(), of, world_size());
      return values.subspan(block.begin, block.size());
    };
    absl::Span<float> mine = block_of(rank());
    TY_RETURN_IF_ERROR(SumOwnBlock(block_of, mine.size()));
    std::copy(sum_.begin(), sum_.end(), mine.begin());
    ++phase_;
    return Exchange([&](int) { return mine; }, block_of);
  }

  // Every rank sends its block to every other: 1 step, (r-1) blocks each way.
  absl::Status AllGather(absl::Span<const float> block, absl::Span<float> values) override {
    Begin("all_gather", values.size());
    TY_RETURN_IF_ERROR(CheckSizes(values, block));
    const auto block_of = [&](int of) {
      return values.subspan(static_cast<size_t>(of) * block.size(), block.size());
    };
    std::copy(block.begin(), block.end(), block_of(rank()).begin());
    return Exchange([&](int) { return ReadOnly(block); }, block_of);
  }

  // The root sends to every other rank: 1 step, n floats each.
  absl::Status Broadcast(absl::Span<float> values, int root) override {
    Begin("broadcast", values.size());
    if (root < 0 || root >= world_size()) {
      return CollectiveMismatch(collective_, absl::StrCat("there is no rank ", root));
    }
    const auto all = [&](int) { return values; };
    if (rank() == root) return Exchange(all, Nothing);
    return Exchange(Nothing, all, root);
  }

  // Every rank sends its part to every other: 1 step.
  absl::Status AllToAll(absl::Span<const absl::Span<const float>> send,
                        absl::Span<const absl::Span<float>> receive) override {
    Begin("all_to_all", 0);
    TY_RETURN_IF_ERROR(CheckParts(collective_, world_size(), send, receive));
    const auto me = static_cast<size_t>(rank());
    if (send[me].size() != receive[me].size()) {
      return WrongPart(collective_, collective_.rank, send[me].size(), receive[me].size());
    }
    std::copy(send[me].begin(), send[me].end(), receive[me].begin());
    return Exchange([&](int peer) { return ReadOnly(send[static_cast<size_t>(peer)]); },
                    [&](int peer) { return receive[static_cast<size_t>(peer)]; });
  }

  // Returns when the other rank receives.
  absl::Status Send(absl::Span<const float> values, int peer) override {
    TY_RETURN_IF_ERROR(BeginMessage("send", messages_sent_, peer));
    return Exchange([&](int) { return ReadOnly(values); }, Nothing, peer);
  }

  absl::Status Receive(absl::Span<float> values, int peer) override {
    TY_RETURN_IF_ERROR(BeginMessage("receive", messages_received_, peer));
    return Exchange(
        Nothing, [&](int) { return values; }, peer);
  }

  // Returns when every rank has called it.
  absl::Status Meet() {
    Begin("connect", 1);
    float token = 0;
    received_.resize(static_cast<size_t>(world_size()));
    return Exchange(
        [&](int) { return absl::Span<float>(&token, 1); },
        [&](int peer) { return absl::MakeSpan(received_).subspan(static_cast<size_t>(peer), 1); });
  }

 private:
  using SpanOf = std::function<absl::Span<float>(int peer)>;

  // Gloo takes buffers to send from as void*, and does not write to them.
  static absl::Span<float> ReadOnly(absl::Span<const float> values) {
    return {const_cast<float*>(values.data()), values.size()};
  }

  static absl::Span<float> Nothing(int) { return {}; }

  void Begin(absl::string_view operation, size_t size) {
    collective_ = {membership_.Global(rank()), operation, ++sequence_};
    kind_ = operation;
    size_ = size;
    phase_ = 0;
  }

  // Messages between two ranks have counts of their own.
  absl::Status BeginMessage(absl::string_view operation, std::vector<int64_t>& counts, int peer) {
    collective_ = {membership_.Global(rank()), operation, 0};
    TY_RETURN_IF_ERROR(CheckPeer(collective_, rank(), world_size(), peer));
    collective_.sequence = ++counts[static_cast<size_t>(peer)];
    kind_ = kMessage;
    size_ = 0;
    phase_ = 0;
    return absl::OkStatus();
  }

  absl::Status CheckSizes(absl::Span<const float> values, absl::Span<const float> block) const {
    if (values.size() == block.size() * static_cast<size_t>(world_size())) return absl::OkStatus();
    return CollectiveMismatch(
        collective_, absl::StrCat(values.size(), " elements do not fit blocks of ", block.size()));
  }

  // Messages of different collectives must not meet, since Gloo ends the process when a message is
  // longer than the buffer that waits for it. Therefore the slot encodes sequence, phase, operation
  // and sizes, and ranks that disagree time out.
  uint64_t Slot(size_t part) const {
    uint64_t mix =
        (size_ * 0x9E3779B97F4A7C15U + part) * 0x9E3779B97F4A7C15U + static_cast<uint64_t>(phase_);
    for (const char c : kind_) mix = (mix ^ static_cast<uint8_t>(c)) * 0x100000001B3U;
    const uint64_t slot = (static_cast<uint64_t>(collective_.sequence) << 24) ^ (mix >> 40);
    // Messages are counted apart from collectives.
    return kind_ == kMessage ? slot | uint64_t{1} << 62 : slot;
  }

  // Sends `outgoing(p)` to every peer p and receives `incoming(p)` from it; empty spans are
  // skipped. `only` restricts both to one peer.
  absl::Status Exchange(const SpanOf& outgoing, const SpanOf& incoming, int only = -1) {
    if (!broken_.ok()) return broken_;
    std::vector<Transfer> receives, sends;
    int peer = only;
    const auto deadline = std::chrono::steady_clock::now() + Milliseconds(timeout_);
    try {
      for (int i = 1; i < world_size(); ++i) {
        // Each rank begins with its right neighbour, so that not all send to rank 0 first.
        peer = (rank() + i) % world_size();
        if (only >= 0 && peer != only) continue;
        Post(incoming(peer), peer, receives, &UnboundBuffer::recv);
        Post(outgoing(peer), peer, sends, &UnboundBuffer::send);
      }
      const PeerWatch::Waiting waiting(watch_, receives, sends);
      for (Transfer& receive : receives) {
        peer = receive.peer;
        if (!receive.buffer->waitRecv(nullptr, Remaining(deadline))) throw AbortedWait();
      }
      for (Transfer& send : sends) {
        peer = send.peer;
        if (!send.buffer->waitSend(nullptr, Remaining(deadline))) throw AbortedWait();
      }
    } catch (const std::exception& exception) {
      broken_ =
          std::chrono::steady_clock::now() >= deadline
              ? CollectiveTimedOut(collective_, membership_.Global(peer), timeout_)
              : PeerLost(collective_, membership_.Global(peer), WithoutSource(exception.what()));
      broken_ = WithPlaces(broken_, places_, membership_, peer);
      // Gloo's thread still knows the buffers below. It lets go of them only when the pairs are
      // closed.
      context_->closeConnections();
    }
    return broken_;
  }

  static gloo::IoException AbortedWait() { return gloo::IoException("connection closed"); }

  void Post(absl::Span<float> values, int peer, std::vector<Transfer>& transfers,
            void (UnboundBuffer::*post)(int, uint64_t, size_t, size_t)) {
    if (values.empty()) return;
    const size_t bytes = values.size() * sizeof(float);
    transfers.push_back({peer, context_->createUnboundBuffer(values.data(), bytes)});
    (transfers.back().buffer.get()->*post)(peer, Slot(values.size()), 0, bytes);
  }

  static std::chrono::milliseconds Remaining(std::chrono::steady_clock::time_point deadline) {
    // The timeout is at least 1 ms, since 0 would mean no limit. It is rounded up, since a wait
    // that ends before the deadline is taken for a lost peer.
    return std::max(std::chrono::milliseconds(1), std::chrono::ceil<std::chrono::milliseconds>(
                                                      deadline - std::chrono::steady_clock::now()));
  }

  // Sends block_of(p) to every p, and leaves in sum_ the sum of this rank's block over the ranks,
  // in rank order.
  absl::Status SumOwnBlock(const SpanOf& block_of, size_t block_size) {
    const auto from = [&](int peer) {
      return absl::MakeSpan(received_).subspan(static_cast<size_t>(peer) * block_size, block_size);
    };
    received_.resize(block_size * static_cast<size_t>(world_size()));
    absl::Span<float> own = block_of(rank());
    std::copy(own.begin(), own.end(), from(rank()).begin());
    TY_RETURN_IF_ERROR(Exchange(block_of, from));
    absl::Span<float> first = from(0);
    sum_.assign(first.begin(), first.end());
    for (int peer = 1; peer < world_size(); ++peer) {
      AddTo(sum_.data(), from(peer).data(), block_size);
    }
    return absl::OkStatus();
  }

  static constexpr absl::string_view kMessage = "message";

  const std::shared_ptr<gloo::Context> context_;
  const std::vector<std::string> places_;  // by rank in the group, for messages
  const Membership membership_;
  absl::Duration timeout_;
  // The meeting that ends the connecting is number 0.
  int64_t sequence_ = -1;
  Collective collective_;
  absl::string_view kind_;                  // the same on all ranks that take part
  std::vector<int64_t> messages_sent_;      // by peer
  std::vector<int64_t> messages_received_;  // by peer
  size_t size_ = 0;
  int phase_ = 0;
  absl::Status broken_;
  std::vector<float> received_;
  std::vector<float> sum_;
  PeerWatch watch_;  // last, because its threads must end before the context is destroyed
};

absl::StatusOr<InterfaceAddress> FindListening(const std::string& interface) {
  absl::StatusOr<InterfaceAddress> found = FindInterface(interface);
  if (found.ok()) return found;
  return absl::FailedPreconditionError(
      absl::StrCat("cannot listen for other ranks: ", found.status().message()));
}

absl::StatusOr<std::shared_ptr<gloo::transport::Device>> MakeDevice(const InterfaceAddress& here) {
  gloo::transport::tcp::attr attr;
  attr.hostname = here.address;
  try {
    return gloo::transport::tcp::CreateDevice(attr);
  } catch (const std::exception& exception) {
    return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", here.address, " (",
                                                      here.interface,
                                                      "): ", WithoutSource(exception.what())));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> ConnectGloo(const GlooOptions& options) {
  Membership membership = MembershipOf(options.group, options.rank, options.world_size);
  TY_ASSIGN_OR_RETURN(const InterfaceAddress here, FindListening(options.interface));
  TY_ASSIGN_OR_RETURN(auto device, MakeDevice(here));
  RunDirStore store(options.run_dir, absl::StrCat("gloo.", membership.key_prefix),
                    membership.members, options.connect_timeout, options.cancelled);
  const Collective connect{options.rank, "connect", 0};
  Mesh mesh;
  try {
    TY_ASSIGN_OR_RETURN(mesh, ConnectMesh({.membership = membership,
                                           .device = std::move(device),
                                           .address = here.address,
                                           .worker = options.worker,
                                           .timeout = options.connect_timeout},
                                          store));
  } catch (const std::exception& exception) {
    if (options.cancelled != nullptr && options.cancelled->load()) {
      return absl::CancelledError(
          absl::StrCat("rank ", options.rank, ": stopped while it waited for the other ranks"));
    }
    const int peer = store.missing().size() == 1 ? std::atoi(store.missing()[0].c_str()) : -1;
    return PeerLost(connect, peer, WithoutSource(exception.what()));
  }
  auto communicator = std::make_unique<GlooCommunicator>(std::move(mesh), std::move(membership),
                                                         options.connect_timeout);
  // A rank that is done must not leave while others still connect, since they would see it as lost.
  TY_RETURN_IF_ERROR(communicator->Meet());
  communicator->set_timeout(options.timeout);
  return communicator;
}

}  // namespace trainyard::parallel
