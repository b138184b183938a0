// web shows the page in the browser of this machine.
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/selector.h"
#include "client/commands/verbs.h"
#include "client/daemons/child.h"
#include "client/link/loopback.h"
#include "client/output/text.h"
#include "client/web/web_server.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

struct WebOptions {
  std::string job;
  int port = 0;
  bool no_open = false;
};

constexpr absl::Duration kOpenTimeout = absl::Seconds(10);
constexpr char kPortAdvice[] = "choose another port, or --port 0 for a free one";

// Returns the variable's value, or "".
std::string Variable(const Surroundings& around, absl::string_view name) {
  const std::string prefix = absl::StrCat(name, "=");
  for (const std::string& variable : around.environment) {
    if (absl::StartsWith(variable, prefix)) return variable.substr(prefix.size());
  }
  return "";
}

// Opens the link in the user's browser, and returns false if there is none.
bool OpenBrowser(const Context& context, const std::string& url) {
  std::string program = Variable(context.surroundings, "BROWSER");
  const bool has_screen = !Variable(context.surroundings, "DISPLAY").empty() ||
                          !Variable(context.surroundings, "WAYLAND_DISPLAY").empty();
  if (program.empty() && has_screen) program = "xdg-open";
  if (program.empty()) return false;
  const auto opened = daemons::RunChild({program, url}, "", kOpenTimeout);
  return opened.ok() && opened->exit_code == 0;
}

Result Web(const Context& context, const WebOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  std::string path = "/";
  if (!options.job.empty()) {
    TY_ASSIGN_OR_RETURN(const std::string name, ResolveOne(*link, options.job));
    path = absl::StrCat("/", name);
  }
  TY_ASSIGN_OR_RETURN(link::LoopbackListener listener,
                      link::ListenOnLoopback(options.port, kPortAdvice));
  const int port = listener.port;
  web::WebServer server(std::move(listener), link->channel());
  const std::string url = server.LinkTo(path);
  const bool is_open = !options.no_open && OpenBrowser(context, url);
  context.Say(is_open ? "The page is open in your browser, as long as this runs; Ctrl-C ends it."
                      : "Open this link in a browser. It is good once, and as long as this runs; "
                        "Ctrl-C ends it.");
  context.out << url << "\n" << std::flush;
  if (!is_open && !Variable(context.surroundings, "SSH_CONNECTION").empty()) {
    context.Say(
        absl::StrCat("You are here by ssh. For a browser at your end, run this there: ssh -L ",
                     port, ":127.0.0.1:", port, " and this host"));
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
