// Switches between stacks, without system calls.
#include "tests/testing/cuda_on_cpu/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>

#include "common/base/check.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// A switch takes some ten instructions: the registers that a function must keep are pushed onto one
// stack, and popped from the other. swapcontext would make two system calls, which is a hundred
// times slower, and kernels switch at each barrier.
//   void trainyard_switch_stack(void** stopped_at, void* go_on_at)
asm(R"(
.text
.type trainyard_switch_stack, @function
trainyard_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size trainyard_switch_stack, .-trainyard_switch_stack
)");
extern "C" void trainyard_switch_stack(void** stopped_at, void* go_on_at);
#endif

namespace trainyard::cuda_on_cpu {
namespace {

// Frames are large under the address sanitizer. Pages that are never touched cost nothing.
constexpr size_t kStackBytes = size_t{256} << 10;

// The two ends of a switch: the fiber that was left, and the one that is entered.
thread_local constinit Fiber* left = nullptr;
thread_local constinit Fiber* entered = nullptr;

}  // namespace

struct Fiber::Context {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t registers = {};
#endif
};

Fiber::Fiber() : context_(std::make_unique<Context>()) {}

Fiber::Fiber(void (*body)(void*), void* argument)
    : body_(body), argument_(argument), context_(std::make_unique<Context>()) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  mapping_ = mmap(nullptr, page + kStackBytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TY_CHECK(mapping_ != MAP_FAILED);
  TY_CHECK(mprotect(mapping_, page, PROT_NONE) == 0);
  auto* bottom = static_cast<unsigned char*>(mapping_) + page;
  bottom_ = bottom;
  bytes_ = kStackBytes;
#if defined(__x86_64__)
  // There are six registers, then the return address. A function is entered with the stack 8 bytes
  // off a multiple of 16, and finds a null return address, at which debuggers stop.
  auto* top = reinterpret_cast<void**>(bottom + kStackBytes);
  top[-2] = reinterpret_cast<void*>(&Fiber::Enter);
  context_->stack_pointer = top - 8;
#else
  getcontext(&context_->registers);
  context_->registers.uc_stack.ss_sp = bottom;
  context_->registers.uc_stack.ss_size = kStackBytes;
  makecontext(&context_->registers, &Fiber::Enter, 0);
#endif
}

Fiber::~Fiber() {
  if (mapping_ != nullptr) {
#ifdef __SANITIZE_ADDRESS__
    // The frames of a body that never returns stay marked, and whatever is mapped here next, such
    // as the stack of another thread, would inherit the marks.
    __asan_unpoison_memory_region(bottom_, bytes_);
#endif
    munmap(mapping_, static_cast<size_t>(sysconf(_SC_PAGESIZE)) + kStackBytes);
  }
}

Fiber& Fiber::Current() {
  return *entered;
}

void Fiber::SwitchTo(Fiber& next) {
  left = this;
  entered = &next;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&sanitizer_stack_, next.bottom_, next.bytes_);
#endif
#if defined(__x86_64__)
  trainyard_switch_stack(&context_->stack_pointer, next.context_->stack_pointer);
#else
  swapcontext(&context_->registers, &next.context_->registers);
#endif
  Arrived();
}

void Fiber::Arrived() {
#ifdef __SANITIZE_ADDRESS__
  // Reports the bounds of the stack that was left, which is how those of a thread's own stack
  // become known.
  __sanitizer_finish_switch_fiber(sanitizer_stack_, &left->bottom_, &left->bytes_);
#endif
}

void Fiber::Enter() {
  Fiber* fiber = entered;
  fiber->Arrived();
  fiber->body_(fiber->argument_);
  CheckFailed(__FILE__, __LINE__, "the body of a fiber returned");
}

}  // namespace trainyard::cuda_on_cpu
