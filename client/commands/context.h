// What every command works with.
#pragma once

#include <iosfwd>
#include <memory>
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
#include "google/protobuf/message.h"

namespace trainyard::commands {

enum class Format { kTable, kWide, kJson, kJsonLines, kYaml, kName };

// The flags that all verbs have.
struct GlobalOptions {
  std::string server;
  Format format = Format::kTable;
  bool no_color = false;
  bool quiet = false;

  // Returns true if a person reads the data, so that the verb draws a table.
  bool IsTable() const { return format == Format::kTable || format == Format::kWide; }
};

// What the environment says; read in main.
struct Surroundings {
  std::string server;       // $TRAINYARD_SERVER
  std::string config_home;  // $XDG_CONFIG_HOME
  std::string state_home;   // $XDG_STATE_HOME
  std::string home;         // $HOME
  std::string binary_dir;   // the folder of our own binary
};

// It borrows all that it refers to.
struct Context {
  const GlobalOptions& options;
  const Surroundings& surroundings;
  const output::Terminal& terminal;
  std::ostream& out;  // data
  std::ostream& err;  // talk
  std::istream& in;
  // True if a person can answer a question.
  bool in_is_terminal;
  Clock& clock;
  Rng& rng;
  link::Interrupt& interrupt;

  // Writes a line of talk, unless --quiet was given.
  void Say(absl::string_view text) const;
};

// A command ends with an exit code, or with an error that is still to be told.
using Result = absl::StatusOr<link::ExitCode>;

// --server, $TRAINYARD_SERVER, the current context of the config file, or the default socket.
absl::StatusOr<std::string> ServerAddress(const Context& context);
absl::StatusOr<std::unique_ptr<link::ServerLink>> Connect(const Context& context);

// Asks a person a question on stderr, and returns whether the answer is yes. Enter alone gives
// `yes_by_default`.
bool Confirm(const Context& context, absl::string_view question, bool yes_by_default);

// Prints messages as json, jsonl, yaml or names, and returns true. Returns false where a table was
// asked for, which the command draws itself. `names` go with the messages.
bool PrintList(const Context& context,
               const std::vector<const google::protobuf::Message*>& messages,
               const std::vector<std::string>& names);
// The same for a container of messages.
template <typename Messages>
bool PrintMessages(const Context& context, const Messages& messages,
                   const std::vector<std::string>& names) {
  std::vector<const google::protobuf::Message*> pointers;
  for (const auto& message : messages) pointers.push_back(&message);
  return PrintList(context, pointers, names);
}
// The same for resources, which carry their names.
template <typename Resources>
bool PrintResources(const Context& context, const Resources& resources) {
  std::vector<std::string> names;
  for (const auto& resource : resources) names.push_back(resource.name());
  return PrintMessages(context, resources, names);
}
// The same for one message, which is no list in JSON and YAML.
bool PrintOne(const Context& context, const google::protobuf::Message& message,
              const std::string& name);

// "1 job", "3 jobs".
std::string Counted(size_t count, absl::string_view noun);

}  // namespace trainyard::commands
