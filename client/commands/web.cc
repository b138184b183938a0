// web shows the page in the browser of this machine.
#include <ostream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/daemons/child.h"
#include "client/link/loopback.h"
#include "client/web/web_server.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

struct WebOptions {
  std::string job;
  int port = 0;
  bool no_open = false;
};

constexpr char kPortAdvice[] = "choose another port, or --port 0 for a free one";

// Returns true if the variable has a value.
bool IsSet(const Context& context, absl::string_view name) {
  return !VariableOf(context.surroundings, name).value_or("").empty();
}

// Starts the user's browser with the link, and returns false if there is none. A browser may stay
// until the user closes it, so nobody waits for it.
bool OpenBrowser(const Context& context, const std::string& url) {
  std::string program = VariableOf(context.surroundings, "BROWSER").value_or("");
  if (program.empty() && (IsSet(context, "DISPLAY") || IsSet(context, "WAYLAND_DISPLAY"))) {
    program = "xdg-open";
  }
  if (program.empty()) return false;
  // The shell looks for the program in $PATH.
  return daemons::StartDaemon({"/bin/sh", "-c", "exec \"$0\" \"$1\"", program, url}, "/dev/null")
      .ok();
}

Result Web(const Context& context, const WebOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  std::string path = "/";
  if (!options.job.empty()) {
    TY_ASSIGN_OR_RETURN(const std::string name, ResolveOne(*link, options.job));
    // A job that is given by its number has not been looked up.
    v1::GetJobRequest request;
    request.set_name(name);
    TY_RETURN_IF_ERROR(link->Call(&v1::JobService::Stub::GetJob, request).status());
    path = absl::StrCat("/", name);
  }
  TY_ASSIGN_OR_RETURN(link::LoopbackListener listener,
                      link::ListenOnLoopback(options.port, kPortAdvice));
  const int port = listener.port;
  web::WebServer server(std::move(listener), link->channel());
  const std::string url = server.LinkTo(path);
  const bool is_open = !options.no_open && OpenBrowser(context, url);
  context.Say(
      absl::StrCat(is_open ? "The page opens in your browser. If it does not, open this link there."
                           : "Open this link in a browser.",
                   " It is good once, and as long as this runs; Ctrl-C ends it."));
  context.out << url << "\n" << std::flush;
  if (!is_open && IsSet(context, "SSH_CONNECTION")) {
    context.Say(
        absl::StrCat("You are here by ssh. For a browser at your end, run this there, with "
                     "the name of this host: ssh -N -L ",
                     port, ":127.0.0.1:", port, " HOST"));
  }
  TY_RETURN_IF_ERROR(server.Run(context.interrupt));
  return link::kOk;
}

}  // namespace

void AddWeb(VerbTable& verbs) {
  verbs.Add<WebOptions>(
      "web", "Show jobs, curves and devices in the browser", "\n  trainyard web 12",
      [](client::Flags& flags, WebOptions& options) {
        flags.Word("JOB", options.job, "The job whose page is opened; without it, all jobs");
        flags
            .Value("--port", options.port,
                   "The port of this machine; 0, the default, for a free one")
            .Range(0, 65535);
        flags.Switch("--no-open", options.no_open, "Print the link, and open no browser");
      },
      Web);
}

}  // namespace trainyard::commands
