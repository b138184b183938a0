// A library that a test preloads into a real process, to make single system calls fail, to kill the
// process at one of them, and to move its wall clock. It does what the mapped file of
// shim_control.h says, and nothing without such a file.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>

#include "tests/faults/shim_control.h"

namespace {

using trainyard::testing::kShimCreate;
using trainyard::testing::kShimCut;
using trainyard::testing::kShimKill;
using trainyard::testing::kShimKillHalf;
using trainyard::testing::kShimRename;
using trainyard::testing::kShimSend;
using trainyard::testing::kShimSync;
using trainyard::testing::kShimUnlink;
using trainyard::testing::kShimWrite;
using trainyard::testing::ShimControl;

constexpr int64_t kSecondNs = 1'000'000'000;

// Returns the C library's function that this library hides.
template <typename Function>
Function Real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

ShimControl* MapControl() {
  const char* path = getenv(trainyard::testing::kShimVariable);
  if (path == nullptr) return nullptr;
  // The system calls are made directly, because open is among those that this library replaces.
  const long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return nullptr;
  void* memory = mmap(nullptr, sizeof(ShimControl), PROT_READ | PROT_WRITE, MAP_SHARED,
                      static_cast<int>(fd), 0);
  close(static_cast<int>(fd));
  return memory == MAP_FAILED ? nullptr : static_cast<ShimControl*>(memory);
}

ShimControl* Control() {
  static ShimControl* control = MapControl();
  return control;
}

[[noreturn]] void Die() {
  kill(getpid(), SIGKILL);
  while (true) pause();
}

constexpr int32_t kPass = INT32_MIN;

// Returns kPass, or the action for this call of a file at `path`.
int32_t Strike(uint32_t call, const char* path) {
  ShimControl* control = Control();
  if (control == nullptr || (control->calls.load() & call) == 0) return kPass;
  if (strstr(path, control->path) == nullptr) return kPass;
  control->seen.fetch_add(1);
  if (control->passing.fetch_sub(1) > 0) return kPass;
  if (control->times.fetch_sub(1) <= 0) return kPass;
  control->struck.fetch_add(1);
  const int32_t action = control->action.load();
  if (action == kShimKill) Die();
  return action;
}

// The file or folder whose sync was struck last, while nothing was changed in it since.
std::mutex failed_mutex;
char failed_path[4096];

// Sees whether a sync trusts one that has failed.
void Watch(uint32_t call, const char* path) {
  const std::lock_guard lock(failed_mutex);
  if (failed_path[0] == '\0') return;
  const bool is_same = strcmp(path, failed_path) == 0;
  const bool is_inside = !is_same && strncmp(path, failed_path, strlen(failed_path)) == 0;
  if (call == kShimSync) {
    if (is_same) Control()->trusted.fetch_add(1);
    return;
  }
  // Bytes change a file, and names change it and its folder. A file that is opened was there
  // before.
  const bool changes_bytes = call == kShimWrite || call == kShimCut;
  const bool changes_file = is_same && call != kShimCreate;
  if (changes_file || (is_inside && !changes_bytes)) failed_path[0] = '\0';
}

int32_t StrikePath(uint32_t call, const char* path) {
  if (Control() == nullptr) return kPass;
  Watch(call, path);
  return Strike(call, path);
}

int32_t StrikeFile(uint32_t call, int fd) {
  if (Control() == nullptr) return kPass;
  const int error = errno;
  char link[32];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  char path[4096];
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  path[length < 0 ? 0 : length] = '\0';
  errno = error;
  const int32_t verdict = StrikePath(call, path);
  if (call == kShimSync && verdict > 0) {
    const std::lock_guard lock(failed_mutex);
    snprintf(failed_path, sizeof(failed_path), "%s", path);
  }
  return verdict;
}

// Does what `verdict` says instead of a call without bytes; true if it has failed.
bool Fails(int32_t verdict) {
  if (verdict == kPass) return false;
  if (verdict == kShimKillHalf) Die();
  errno = verdict;
  return true;
}

bool IsWallClock(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}

int64_t OffsetNs() {
  const ShimControl* control = Control();
  return control == nullptr ? 0 : control->clock_offset_ns.load();
}

timespec Shifted(const timespec& time, int64_t offset_ns) {
  const int64_t ns = int64_t{time.tv_sec} * kSecondNs + time.tv_nsec + offset_ns;
  return {ns / kSecondNs, ns % kSecondNs};
}

}  // namespace

extern "C" {

int fsync(int fd) {
  static const auto real = Real<int (*)(int)>("fsync");
  return Fails(StrikeFile(kShimSync, fd)) ? -1 : real(fd);
}

int fdatasync(int fd) {
  static const auto real = Real<int (*)(int)>("fdatasync");
  return Fails(StrikeFile(kShimSync, fd)) ? -1 : real(fd);
}

ssize_t write(int fd, const void* data, size_t size) {
  static const auto real = Real<ssize_t (*)(int, const void*, size_t)>("write");
  const int32_t verdict = StrikeFile(kShimWrite, fd);
  if (verdict == kShimKillHalf) (void)real(fd, data, size / 2);
  return Fails(verdict) ? -1 : real(fd, data, size);
}

ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  static const auto real = Real<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64");
  const int32_t verdict = StrikeFile(kShimWrite, fd);
  if (verdict == kShimKillHalf) (void)real(fd, data, size / 2, offset);
  return Fails(verdict) ? -1 : real(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  return pwrite64(fd, data, size, offset);
}

ssize_t writev(int fd, const iovec* parts, int count) {
  static const auto real = Real<ssize_t (*)(int, const iovec*, int)>("writev");
  return Fails(StrikeFile(kShimWrite, fd)) ? -1 : real(fd, parts, count);
}

int ftruncate64(int fd, off64_t size) {
  static const auto real = Real<int (*)(int, off64_t)>("ftruncate64");
  return Fails(StrikeFile(kShimCut, fd)) ? -1 : real(fd, size);
}

int ftruncate(int fd, off_t size) {
  return ftruncate64(fd, size);
}

int rename(const char* from, const char* to) {
  static const auto real = Real<int (*)(const char*, const char*)>("rename");
  return Fails(StrikePath(kShimRename, to)) ? -1 : real(from, to);
}

int unlink(const char* path) {
  static const auto real = Real<int (*)(const char*)>("unlink");
  return Fails(StrikePath(kShimUnlink, path)) ? -1 : real(path);
}

int mkdir(const char* path, mode_t mode) {
  static const auto real = Real<int (*)(const char*, mode_t)>("mkdir");
  return Fails(StrikePath(kShimCreate, path)) ? -1 : real(path, mode);
}

int open64(const char* path, int flags, ...) {
  static const auto real = Real<int (*)(const char*, int, ...)>("open64");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if ((flags & O_CREAT) != 0 && Fails(StrikePath(kShimCreate, path))) return -1;
  return real(path, flags, mode);
}

int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return open64(path, flags, mode);
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static const auto real = Real<ssize_t (*)(int, const msghdr*, int)>("sendmsg");
  const int32_t verdict = StrikeFile(kShimSend, fd);
  if (verdict == kShimKillHalf && message->msg_iovlen > 0) {
    (void)write(fd, message->msg_iov[0].iov_base, message->msg_iov[0].iov_len / 2);
  }
  return Fails(verdict) ? -1 : real(fd, message, flags);
}

int clock_gettime(clockid_t clock, timespec* time) {
  static const auto real = Real<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int result = real(clock, time);
  if (result == 0 && IsWallClock(clock)) *time = Shifted(*time, OffsetNs());
  return result;
}

int gettimeofday(timeval* time, void*) {
  timespec now{};
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  *time = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* result) {
  timespec now{};
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  if (result != nullptr) *result = now.tv_sec;
  return now.tv_sec;
}

// The kernel does not know the moved clock, so waits until a wall time are moved back for it.
// Abseil waits by the futex itself.
long syscall(long number, ...) {
  static const auto real = Real<long (*)(long, ...)>("syscall");
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& argument : a) argument = va_arg(list, long);
  va_end(list);
  timespec until{};
  if (number == SYS_futex && (a[1] & FUTEX_CLOCK_REALTIME) != 0 && a[3] != 0) {
    until = Shifted(*reinterpret_cast<const timespec*>(a[3]), -OffsetNs());
    a[3] = reinterpret_cast<long>(&until);
  }
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  static const auto real =
      Real<int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>(
          "pthread_cond_clockwait");
  const timespec moved = IsWallClock(clock) ? Shifted(*until, -OffsetNs()) : *until;
  return real(condition, mutex, clock, &moved);
}

}  // extern "C"
