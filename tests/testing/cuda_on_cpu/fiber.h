// Threads of a kernel are fibers: they have stacks of their own and take turns on one thread of the
// host.
#pragma once

#include <cstddef>
#include <memory>

namespace trainyard::cuda_on_cpu {

// A stack, and the point at which it stopped. Only the thread that made it uses it.
class Fiber {
 public:
  // The stack on which the caller already runs.
  Fiber();
  // A stack that calls body(argument) when it is first switched to. The body must not return.
  Fiber(void (*body)(void* argument), void* argument);
  // Objects on the stack are not destroyed.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The fiber on which the caller runs.
  static Fiber& Current();
  // Stops here and continues with `next`. It is called on this fiber, and returns when another
  // fiber switches back.
  void SwitchTo(Fiber& next);

 private:
  struct Context;

  [[noreturn]] static void Enter();
  void Arrived();

  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::unique_ptr<Context> context_;
  // The mapped memory, including a guard page at its low end. Null for a thread's own stack.
  void* mapping_ = nullptr;
  // The address sanitizer's view: the bounds of the stack, and its fake stack while this fiber
  // rests.
  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
  void* sanitizer_stack_ = nullptr;
};

}  // namespace trainyard::cuda_on_cpu
