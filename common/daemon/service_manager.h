// Tells the service manager of the host (systemd) that a daemon is ready, lives, and stops. It is
// the protocol of sd_notify(3): a datagram of lines, without systemd's library.
#pragma once

#include <csignal>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace trainyard {

// The variables with which a service manager starts a daemon. All are empty without one.
struct ServiceVariables {
  std::string notify_socket;    // $NOTIFY_SOCKET
  std::string watchdog_usec;    // $WATCHDOG_USEC
  std::string watchdog_pid;     // $WATCHDOG_PID
  std::string listen_fds = {};  // $LISTEN_FDS
  std::string listen_pid = {};  // $LISTEN_PID
};

// Reads these variables and removes them, so that the programs which the daemon starts do not speak
// in its name. Only mains call this, before they start threads.
ServiceVariables TakeServiceVariables();

// Speaks with the service manager, if there is one. Messages are never waited for: a manager that
// does not listen must not hold the daemon up.
class ServiceManager {
 public:
  explicit ServiceManager(const ServiceVariables& variables);

  // Says that the daemon serves now. `status` is a line for people.
  void Ready(absl::string_view status) const;
  // Says that the daemon is to end, and asks for this time if the end takes more than a moment.
  void Stopping(absl::Duration time = absl::ZeroDuration()) const;
  // Says that the daemon lives. The manager kills one that has not said so for too long.
  void Alive() const;

  // Returns how often Alive is to be called: three times in the time that the manager allows. It is
  // infinite if the manager does not ask for it.
  absl::Duration alive_interval() const { return alive_interval_; }

  // Waits for one of the signals, which are blocked, and returns its number. Meanwhile it says that
  // the daemon lives, as long as `is_alive` finds that it does.
  int WaitForSignal(const sigset_t& signals, const std::function<bool()>& is_alive) const;

 private:
  void Send(absl::string_view lines) const;

  std::string socket_;
  absl::Duration alive_interval_ = absl::InfiniteDuration();
};

}  // namespace trainyard
