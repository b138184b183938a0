// Keeps the memory of the server within bounds when clients make it grow. gRPC (1.51) has no limit
// for what a connection sends before its first call is complete, and malloc keeps what was freed.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace trainyard {

// Holds what a process has of its own, without what it shares with files and other processes.
struct Memory {
  int64_t resident = 0;
  int64_t in_use = 0;  // given out by malloc
};
Memory ReadMemory();

// Gives memory back to the system once much of it is no longer in use. If the memory exceeds a
// bound, all connections are closed: workers and clients connect again, and nothing is lost. The
// class is not thread-safe.
class MemoryWatch {
 public:
  struct Ports {
    std::function<Memory()> read = ReadMemory;
    std::function<void()> trim;
    std::function<void()> close_connections;
  };

  MemoryWatch(Ports ports, int64_t high) : ports_(std::move(ports)), high_(high) {}

  // Looks, and does what is needed.
  void Look();

 private:
  Memory Trim(Memory memory);

  const Ports ports_;
  int64_t high_;
  int64_t left_ = 0;       // what is resident and not in use since the last trim
  int64_t closed_at_ = 0;  // what was resident when connections were closed, until it is judged
};

}  // namespace trainyard
