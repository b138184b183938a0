// Declares what every command needs: the global flags, the environment, the output streams and the
// ways to print messages.
#pragma once

#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/link/exit_code.h"
#include "client/link/interrupt.h"
#include "client/link/server_link.h"
#include "client/output/terminal.h"
#include "common/base/env.h"
#include "common/rpc/address.h"
#include "google/protobuf/message.h"

namespace trainyard::commands {

enum class Format { kTable, kWide, kJson, kJsonLines, kYaml, kCsv, kName };

// These flags belong to every verb.
struct GlobalOptions {
  std::string server;
  std::string act_as;   // the user for whom an administrator acts
  std::string context;  // the name of one in the config file
  Format format = Format::kTable;
  bool no_color = false;
  bool quiet = false;

  // Returns true if a person reads the data, so that the verb draws a table.
  bool IsTable() const { return format == Format::kTable || format == Format::kWide; }
};

// These settings come from the environment. Only main reads them.
struct Surroundings {
  std::string server;        // $TRAINYARD_SERVER
  std::string config_home;   // $XDG_CONFIG_HOME
  std::string state_home;    // $XDG_STATE_HOME
  std::string home;          // $HOME
  std::string binary_dir;    // the folder of this program
  std::string context = {};  // $TRAINYARD_CONTEXT
  // All variables, as "NAME=VALUE".
  std::vector<std::string> environment = {};
  // The server of the machine, which is another one in tests.
  std::string system_server = std::string(rpc::kSystemServerAddress);
  // The flags of that server, as the package trainyard-server keeps them.
  std::string server_settings = "/etc/trainyard/server.yaml";
};

// Returns the value of a variable of the environment, or nothing if it is not set.
std::optional<std::string> VariableOf(const Surroundings& around, absl::string_view name);

// A context holds what a command works with. It borrows everything that it refers to.
struct Context {
  const GlobalOptions& options;
  const Surroundings& surroundings;
  const output::Terminal& terminal;
  std::ostream& out;  // the stream for data
  std::ostream& err;  // the stream for messages to the user
  std::istream& in;
  // True if standard input is a terminal, so that a person can answer a question.
  bool in_is_terminal;
  Clock& clock;
  Rng& rng;
  link::Interrupt& interrupt;
  // Goes where `out` goes, but control characters stay as they are: for what the user's own program
  // has printed, such as a bar that it redraws.
  std::ostream& raw_out;

  // Prints a line for the user, unless --quiet was given.
  void Say(absl::string_view text) const;
};

// A command ends with an exit code, or with an error that the caller prints.
using Result = absl::StatusOr<link::ExitCode>;

// Returns the folder of config files, such as ~/.config.
std::string ConfigHome(const Surroundings& around);
// Connects to the server that ChooseServer returns. It is defined beside that, in server_choice.cc.
absl::StatusOr<std::unique_ptr<link::ServerLink>> Connect(const Context& context);

// Asks the user a question on stderr, and returns true if the answer is yes. Enter without an
// answer means `yes_by_default`; the end of the input (Ctrl-D) means no.
bool Confirm(const Context& context, absl::string_view question, bool yes_by_default);

// Prints messages as json, jsonl, yaml, csv or names, and returns true. Returns false if the user
// asked for a table, which the command draws itself. `names` are the names of the messages, in the
// same order.
bool PrintList(const Context& context,
               const std::vector<const google::protobuf::Message*>& messages,
               const std::vector<std::string>& names);
// Prints a container of messages as PrintList does.
template <typename Messages>
bool PrintMessages(const Context& context, const Messages& messages,
                   const std::vector<std::string>& names) {
  std::vector<const google::protobuf::Message*> pointers;
  pointers.reserve(static_cast<size_t>(messages.size()));
  for (const auto& message : messages) pointers.push_back(&message);
  return PrintList(context, pointers, names);
}
// Prints resources as PrintList does, with the names that they carry.
template <typename Resources>
bool PrintResources(const Context& context, const Resources& resources) {
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(resources.size()));
  for (const auto& resource : resources) names.push_back(resource.name());
  return PrintMessages(context, resources, names);
}
// Prints one message. JSON and YAML then hold that message and no list.
bool PrintOne(const Context& context, const google::protobuf::Message& message,
              const std::string& name);

// Returns a number with its noun: "1 job", "3 jobs".
std::string Counted(size_t count, absl::string_view noun);

}  // namespace trainyard::commands
