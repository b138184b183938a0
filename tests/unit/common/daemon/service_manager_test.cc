// Tests what the service manager is told, with a socket in its place.
#include "common/daemon/service_manager.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "tests/testing/temp_dir.h"

namespace trainyard {
namespace {

// The socket of a service manager.
class Listener {
 public:
  Listener() : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path().c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }

  std::string path() const { return dir_.File("notify"); }

  // Returns the next message, or "nothing" if none comes in time.
  std::string Next(int wait_ms = 10'000) const {
    pollfd wait = {fd_.get(), POLLIN, 0};
    if (poll(&wait, 1, wait_ms) <= 0) return "nothing";
    std::array<char, 512> text{};
    const ssize_t length = recv(fd_.get(), text.data(), text.size(), 0);
    return std::string(text.data(), static_cast<size_t>(std::max<ssize_t>(length, 0)));
  }

 private:
  testing::TempDir dir_;
  UniqueFd fd_;
};

TEST(ServiceManager, IsToldThatTheDaemonIsReadyLivesAndStops) {
  const Listener listener;
  const ServiceManager manager({listener.path(), "", ""});
  manager.Ready("listening on unix:/a");
  EXPECT_EQ(listener.Next(), "READY=1\nSTATUS=listening on unix:/a");
  manager.Alive();
  EXPECT_EQ(listener.Next(), "WATCHDOG=1");
  manager.Stopping();
  EXPECT_EQ(listener.Next(), "STOPPING=1\nSTATUS=stopping");
  manager.Stopping(absl::Seconds(90));
  EXPECT_EQ(listener.Next(), "STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC=100000000");
}

TEST(ServiceManager, OneThatIsNotThereIsNoError) {
  ServiceManager({"", "", ""}).Ready("x");
  ServiceManager({"/nowhere/notify", "", ""}).Ready("x");
  ServiceManager({std::string(500, 'a'), "", ""}).Ready("x");
}

TEST(ServiceManager, TheIntervalIsAThirdOfWhatTheWatchdogAllows) {
  EXPECT_EQ(ServiceManager({"", "30000000", ""}).alive_interval(), absl::Seconds(10));
  EXPECT_EQ(ServiceManager({"", "30000000", absl::StrCat(getpid())}).alive_interval(),
            absl::Seconds(10));
  EXPECT_EQ(ServiceManager({"", "30000000", "1"}).alive_interval(), absl::InfiniteDuration())
      << "it is meant for another process";
  EXPECT_EQ(ServiceManager({"", "soon", ""}).alive_interval(), absl::InfiniteDuration());
  EXPECT_EQ(ServiceManager({"", "", ""}).alive_interval(), absl::InfiniteDuration());
}

TEST(ServiceManager, ADaemonThatHangsSaysNoMoreThatItLives) {
  const Listener listener;
  const ServiceManager manager({listener.path(), "30000", absl::StrCat(getpid())});
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::atomic<int> asked = 0;
  std::atomic<int> received = 0;
  std::thread waiter(
      [&] { received = manager.WaitForSignal(signals, [&asked] { return ++asked <= 2; }); });
  EXPECT_EQ(listener.Next(), "WATCHDOG=1");
  EXPECT_EQ(listener.Next(), "WATCHDOG=1");
  EXPECT_EQ(listener.Next(/*wait_ms=*/200), "nothing");
  EXPECT_GT(asked, 2);
  pthread_kill(waiter.native_handle(), SIGUSR2);
  waiter.join();
  EXPECT_EQ(received, SIGUSR2);
}

TEST(ServiceManager, ItsVariablesDoNotReachOtherPrograms) {
  setenv("NOTIFY_SOCKET", "/run/systemd/notify", 1);
  setenv("WATCHDOG_USEC", "1000", 1);
  setenv("LISTEN_FDS", "2", 1);
  const ServiceVariables variables = TakeServiceVariables();
  EXPECT_EQ(variables.notify_socket, "/run/systemd/notify");
  EXPECT_EQ(variables.watchdog_usec, "1000");
  EXPECT_EQ(getenv("NOTIFY_SOCKET"), nullptr);
  EXPECT_EQ(variables.listen_fds, "2");
  EXPECT_EQ(getenv("LISTEN_FDS"), nullptr);
  EXPECT_EQ(getenv("WATCHDOG_USEC"), nullptr);
}

}  // namespace
}  // namespace trainyard
