// admin looks after the state directory of a server on this host. The server's own program does
// the work, because only that knows all that is in there; it needs no server that runs.
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/machine.h"
#include "client/commands/verbs.h"
#include "client/daemons/child.h"
#include "common/base/files.h"
#include "common/base/program_paths.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

struct StateOptions {
  std::string state_dir;
};
struct BackupOptions : StateOptions {
  std::string target;
  int keep = 0;
};
struct RestoreOptions : StateOptions {
  std::string snapshot;
  bool replace = false;
};
struct CheckOptions : StateOptions {
  std::string directory;
};

constexpr char kStateDirHelp[] =
    "The state directory of the server [that of `trainyard up`, or else the one that "
    "/etc/trainyard/server.yaml names]";
// Terabytes of checkpoints take their time.
constexpr absl::Duration kTimeout = absl::Hours(24 * 7);

// Returns the flags that lead to the state directory.
absl::StatusOr<std::vector<std::string>> StateFlags(const Context& context,
                                                    const StateOptions& options) {
  if (!options.state_dir.empty()) return std::vector<std::string>{"--state_dir", options.state_dir};
  const std::string own = MachineOf(context, "").server_state_dir;
  if (FileExists(JoinPath(own, "trainyard.db")))
    return std::vector<std::string>{"--state_dir", own};
  const std::string& settings = context.surroundings.server_settings;
  if (FileExists(settings)) return std::vector<std::string>{"--config", settings};
  return absl::NotFoundError(absl::StrCat("this host has no state of a server: neither '", own,
                                          "', which `trainyard up` makes, nor '", settings,
                                          "'; name the directory with --state-dir"));
}

Result RunServerProgram(const Context& context, const StateOptions& options,
                        const std::vector<std::string>& words) {
  TY_ASSIGN_OR_RETURN(const std::string program,
                      FindProgram(context.surroundings.binary_dir, "trainyard-server"));
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> flags, StateFlags(context, options));
  std::vector<std::string> args = {program};
  args.insert(args.end(), flags.begin(), flags.end());
  args.insert(args.end(), words.begin(), words.end());
  TY_ASSIGN_OR_RETURN(const daemons::ChildResult result,
                      daemons::RunChild(args, "", kTimeout, [&context](absl::string_view text) {
                        context.out << text << std::flush;
                      }));
  context.err << result.err;
  return static_cast<link::ExitCode>(result.exit_code);
}

Result Check(const Context& context, const CheckOptions& options) {
  StateOptions state = options;
  if (!options.directory.empty()) {
    if (!options.state_dir.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", options.directory, "' and --state-dir '", options.state_dir,
                       "' name two folders; name the one that is to be checked"));
    }
    state.state_dir = options.directory;  // it says all
  }
  return RunServerProgram(context, state,
                          {"check", "--output", context.options.IsTable() ? "table" : "json"});
}

}  // namespace

void AddAdmin(VerbTable& verbs) {
  verbs.Group("admin", "Back up, restore and check the state of a server of this host");
  verbs.Add<BackupOptions>(
      "admin backup", "Copy the state of a server, also while it runs",
      "/backup/trainyard --keep 48",
      [](client::Flags& flags, BackupOptions& options) {
        flags
            .Word("DIR", options.target,
                  "The folder of snapshots, each of which links what has not changed to the one "
                  "before; or the single file NAME.tar")
            .Required();
        flags.Value("--keep", options.keep, "Remove the oldest snapshots, so that this many stay")
            .Range(0, 1'000'000);
        flags.Value("--state-dir", options.state_dir, kStateDirHelp);
      },
      [](const Context& context, const BackupOptions& options) {
        return RunServerProgram(context, options,
                                {"backup", options.target, "--keep", absl::StrCat(options.keep)});
      });
  verbs.Add<RestoreOptions>(
      "admin restore", "Make the state of a server from a backup, while no server uses it",
      "/backup/trainyard/20261128T120000Z --replace",
      [](client::Flags& flags, RestoreOptions& options) {
        flags.Word("SNAPSHOT", options.snapshot, "A folder or file that `admin backup` has made")
            .Required();
        flags.Switch("--replace", options.replace,
                     "Move the state that is there aside, to STATE_DIR.before-<time>");
        flags.Value("--state-dir", options.state_dir, kStateDirHelp);
      },
      [](const Context& context, const RestoreOptions& options) {
        std::vector<std::string> words = {"restore", options.snapshot};
        if (options.replace) words.emplace_back("--replace");
        return RunServerProgram(context, options, words);
      });
  verbs.Add<CheckOptions>(
      "admin check", "Read all that a server keeps, or a snapshot, and tell what is damaged",
      "/backup/trainyard/20261128T120000Z",
      [](client::Flags& flags, CheckOptions& options) {
        flags.Word("DIR", options.directory, "A snapshot or a state directory");
        flags.Value("--state-dir", options.state_dir, kStateDirHelp);
      },
      Check);
}

}  // namespace trainyard::commands
