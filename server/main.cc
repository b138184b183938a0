// trainyard-server runs until SIGINT or SIGTERM. A second signal ends it at once.
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/log.h"
#include "common/daemon/passed_sockets.h"
#include "common/daemon/service_manager.h"
#include "server/app.h"
#include "server/flags.h"
#include "server/kubernetes/accounts.h"

int main(int argc, char** argv) {
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGINT);
  sigaddset(&stop_signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);  // all threads inherit the mask
  const trainyard::ServiceVariables variables = trainyard::TakeServiceVariables();
  const trainyard::ServiceManager manager(variables);
  const auto env = [](const char* name) { return getenv(name) != nullptr ? getenv(name) : ""; };
  auto flags = trainyard::ParseFlags(
      argc, argv, trainyard::DefaultStateDir(env("XDG_STATE_HOME"), env("HOME")));
  if (flags.exit_code.has_value()) return *flags.exit_code;
  if (flags.task) {
    pthread_sigmask(SIG_UNBLOCK, &stop_signals, nullptr);
    return flags.task();
  }
  flags.options.kubernetes.api_url =
      trainyard::kubernetes::ApiUrl(env("KUBERNETES_SERVICE_HOST"), env("KUBERNETES_SERVICE_PORT"));
  for (char** variable = environ; *variable != nullptr; ++variable) {
    flags.options.environment.emplace_back(*variable);
  }
  flags.options.passed_sockets = trainyard::PassedSockets(variables);
  auto app = trainyard::App::Start(flags.options);
  if (!app.ok()) {
    trainyard::LogError(app.status().message());
    return EXIT_FAILURE;
  }
  manager.Ready(absl::StrCat("listening on ", absl::StrJoin((*app)->addresses(), ", ")));
  manager.WaitForSignal(stop_signals, [&app] { return (*app)->IsAlive(); });
  manager.Stopping();
  pthread_sigmask(SIG_UNBLOCK, &stop_signals, nullptr);
  (*app)->Stop();
}
