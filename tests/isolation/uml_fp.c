// Is preloaded into user-mode Linux. Its kernel sets the registers of a process from an area of a fixed size, and the
// system refuses that on processors whose area is larger (AMX). This sets the first part, and leaves the rest as it is.
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define STATE_OF_X86 0x202

long ptrace(enum __ptrace_request request, ...) {
  static char area[1 << 16];
  va_list arguments;
  va_start(arguments, request);
  const pid_t pid = va_arg(arguments, pid_t);
  void* const address = va_arg(arguments, void*);
  void* const data = va_arg(arguments, void*);
  va_end(arguments);
  if (request == PTRACE_PEEKDATA || request == PTRACE_PEEKTEXT || request == PTRACE_PEEKUSER) {
    long word = 0;
    return syscall(SYS_ptrace, request, pid, address, &word) < 0 ? -1 : word;
  }
  const long done = syscall(SYS_ptrace, request, pid, address, data);
  if (done >= 0 || errno != EFAULT || request != PTRACE_SETREGSET || (long)address != STATE_OF_X86) {
    return done;
  }
  const struct iovec* const part = data;
  struct iovec whole = {area, sizeof area};
  if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, address, &whole) < 0) return -1;
  memcpy(area, part->iov_base, part->iov_len < whole.iov_len ? part->iov_len : whole.iov_len);
  return syscall(SYS_ptrace, PTRACE_SETREGSET, pid, address, &whole);
}
