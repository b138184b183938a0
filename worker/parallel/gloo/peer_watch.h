// Notices peers that are gone. Only this folder uses it, since it includes Gloo.
//
// When a connection breaks, Gloo forgets a transfer that is half read or half written, and the
// thread that waits for it sleeps until the timeout. But a receive that has not begun fails at
// once. So one receive is left pending for every peer, on a slot to which no peer sends.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gloo/context.h"
#include "gloo/transport/unbound_buffer.h"

namespace trainyard::parallel {

struct Transfer {
  int peer;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
};

// Has one sleeping thread for each peer. Borrows the context.
class PeerWatch {
 public:
  explicit PeerWatch(gloo::Context& context);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // While it lives, waits for these transfers are aborted (they return false) when their peer is
  // gone.
  class Waiting {
   public:
    Waiting(PeerWatch& watch, std::vector<Transfer>& receives, std::vector<Transfer>& sends);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    PeerWatch& watch_;
  };

 private:
  struct Life {
    int peer;
    char byte;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
    std::thread thread;
  };

  void Watch(Life& life);
  void AbortWaits(int peer);

  std::vector<std::unique_ptr<Life>> lives_;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool is_stopping_ = false;                   // under mutex_
  std::vector<Transfer>* receives_ = nullptr;  // under mutex_
  std::vector<Transfer>* sends_ = nullptr;     // under mutex_
};

}  // namespace trainyard::parallel
