// Keeps one pending receive and one sleeping thread for each peer, which notice that it is gone.
#include "worker/parallel/gloo/peer_watch.h"

#include <chrono>
#include <cstdint>
#include <exception>

namespace trainyard::parallel {
namespace {

// No collective gets this slot, since theirs begin with a sequence number.
constexpr uint64_t kLifeSlot = ~uint64_t{0};
// Data that arrived before the connection closed is still delivered in the meantime.
constexpr std::chrono::milliseconds kGrace(100);
// This is ten years, since Gloo has no way to wait without a limit.
constexpr std::chrono::hours kForever(10 * 365 * 24);

}  // namespace

PeerWatch::PeerWatch(gloo::Context& context) {
  for (int peer = 0; peer < context.size; ++peer) {
    if (peer == context.rank) continue;
    auto life = std::make_unique<Life>();
    life->peer = peer;
    life->buffer = context.createUnboundBuffer(&life->byte, 1);
    life->thread = std::thread([this, &watched = *life] { Watch(watched); });
    lives_.push_back(std::move(life));
  }
}

PeerWatch::~PeerWatch() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopping_ = true;
  }
  stop_.notify_all();
  for (const auto& life : lives_) {
    life->buffer->abortWaitRecv();
    life->thread.join();
  }
}

void PeerWatch::Watch(Life& life) {
  try {
    life.buffer->recv(life.peer, kLifeSlot, 0, 1);
    life.buffer->waitRecv(nullptr, kForever);
  } catch (const std::exception&) {
    // The peer is gone. The threads that wait for it are told below.
  }
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_.wait_for(lock, kGrace, [this] { return is_stopping_; })) AbortWaits(life.peer);
}

void PeerWatch::AbortWaits(int peer) {
  if (receives_ == nullptr) return;
  for (Transfer& receive : *receives_) {
    if (receive.peer == peer) receive.buffer->abortWaitRecv();
  }
  for (Transfer& send : *sends_) {
    if (send.peer == peer) send.buffer->abortWaitSend();
  }
}

PeerWatch::Waiting::Waiting(PeerWatch& watch, std::vector<Transfer>& receives,
                            std::vector<Transfer>& sends)
    : watch_(watch) {
  const std::lock_guard<std::mutex> lock(watch_.mutex_);
  watch_.receives_ = &receives;
  watch_.sends_ = &sends;
}

PeerWatch::Waiting::~Waiting() {
  const std::lock_guard<std::mutex> lock(watch_.mutex_);
  watch_.receives_ = nullptr;
  watch_.sends_ = nullptr;
}

}  // namespace trainyard::parallel
