// Follows every allocation: by hooks where a sanitizer has taken malloc's place, and else by taking
// its place.
#include "tests/fuzz/memory_meter.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>

#include "common/base/check.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TRAINYARD_MALLOC_HOOKS
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TRAINYARD_MALLOC_HOOKS
#endif
#endif

#ifdef TRAINYARD_MALLOC_HOOKS
#if __has_include(<sanitizer/allocator_interface.h>)
#include <sanitizer/allocator_interface.h>
#else
// GCC's runtime has these, and Debian's GCC comes without the header.
// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
extern "C" {
int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, size_t),
                                              void (*on_free)(const volatile void*));
size_t __sanitizer_get_allocated_size(const volatile void* pointer);
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
#endif
#endif

namespace trainyard::fuzz {
namespace {

std::atomic<int64_t> live_bytes = 0;
std::atomic<int64_t> peak_bytes = 0;
std::atomic<int64_t> bytes_before = 0;

void Add(size_t size) {
  const int64_t live =
      live_bytes.fetch_add(static_cast<int64_t>(size)) + static_cast<int64_t>(size);
  int64_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (live > peak && !peak_bytes.compare_exchange_weak(peak, live)) {
  }
}

void Subtract(size_t size) {
  live_bytes.fetch_sub(static_cast<int64_t>(size));
}

#ifdef TRAINYARD_MALLOC_HOOKS
void OnMalloc(const volatile void* pointer, size_t /*size*/) {
  Add(__sanitizer_get_allocated_size(const_cast<const void*>(pointer)));
}
void OnFree(const volatile void* pointer) {
  if (pointer != nullptr) {
    Subtract(__sanitizer_get_allocated_size(const_cast<const void*>(pointer)));
  }
}
const bool kHasHooks = [] {
  TY_CHECK(__sanitizer_install_malloc_and_free_hooks(OnMalloc, OnFree) > 0);
  return true;
}();
#endif

}  // namespace

void MemoryMeter::Restart() {
  bytes_before = live_bytes.load();
  peak_bytes = bytes_before.load();
}

int64_t MemoryMeter::Peak() {
  return peak_bytes - bytes_before;
}

}  // namespace trainyard::fuzz

#ifndef TRAINYARD_MALLOC_HOOKS
// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): these are glibc's names
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* pointer, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* pointer);

static void* Counted(void* pointer) {
  if (pointer != nullptr) trainyard::fuzz::Add(malloc_usable_size(pointer));
  return pointer;
}

void* malloc(size_t size) {
  return Counted(__libc_malloc(size));
}
void* calloc(size_t count, size_t size) {
  return Counted(__libc_calloc(count, size));
}
void* realloc(void* pointer, size_t size) {
  const size_t old_size = pointer == nullptr ? 0 : malloc_usable_size(pointer);
  void* moved = __libc_realloc(pointer, size);
  if (moved == nullptr && size > 0) return nullptr;  // the old block stays
  // Both may exist at a time, so the new one counts before the old one is subtracted.
  Counted(moved);
  trainyard::fuzz::Subtract(old_size);
  return moved;
}
void* memalign(size_t alignment, size_t size) {
  return Counted(__libc_memalign(alignment, size));
}
void* aligned_alloc(size_t alignment, size_t size) {
  return memalign(alignment, size);
}
int posix_memalign(void** pointer, size_t alignment, size_t size) {
  *pointer = memalign(alignment, size);
  return *pointer == nullptr ? ENOMEM : 0;
}
void free(void* pointer) {
  if (pointer != nullptr) trainyard::fuzz::Subtract(malloc_usable_size(pointer));
  __libc_free(pointer);
}
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
#endif
