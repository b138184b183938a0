// Threads of a kernel are fibers: stacks of their own that take turns on one thread of the host.
#pragma once

#include <cstddef>
#include <memory>

namespace trainyard::cuda_on_cpu {

// A stack and where it stopped. Used by the thread that made it alone.
class Fiber {
 public:
  // The stack on which the caller runs already.
  Fiber();
  // A stack that calls body(argument) when it is first switched to. The body must not return.
  Fiber(void (*body)(void* argument), void* argument);
  // What stands on the stack is not destroyed.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The fiber that the caller runs on, which another has switched to.
  static Fiber& Current();
  // Stops here and goes on with `next`. Called on this fiber; returns when another switches back.
  void SwitchTo(Fiber& next);

 private:
  struct Context;

  [[noreturn]] static void Enter();
  void Arrived();

  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::unique_ptr<Context> context_;
  // What was mapped, a guard page at its low end included. Null for a thread's own stack.
  void* mapping_ = nullptr;
  // The address sanitizer's view: the stack's bounds, and its replacement while this one rests.
  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
  void* sanitizer_stack_ = nullptr;
};

}  // namespace trainyard::cuda_on_cpu
