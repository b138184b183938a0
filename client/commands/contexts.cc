// contexts lists and changes the servers to which the user has given names.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/commands/server_choice.h"
#include "client/commands/verbs.h"
#include "client/output/csv.h"
#include "client/output/proto_text.h"
#include "client/output/table.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

using config::ConfigFile;
using nlohmann::ordered_json;

constexpr char kServer[] = "server";

struct AddOptions {
  std::string name;
  std::string address;
  bool use = false;
  bool replace = false;
};

struct UseOptions {
  std::string name;
  bool none = false;
};

struct NameOptions {
  std::string name;
};

// Prints objects as json, jsonl or yaml, and returns true. Returns false for a table.
bool PrintObjects(const Context& context, const ordered_json& value) {
  switch (context.options.format) {
    case Format::kJson:
      context.out << value.dump(1) << "\n";
      return true;
    case Format::kJsonLines:
      if (!value.is_array()) context.out << value.dump() << "\n";
      if (value.is_array()) {
        for (const ordered_json& element : value) context.out << element.dump() << "\n";
      }
      return true;
    case Format::kCsv:
      context.out << output::JsonToCsv(value.is_array() ? value.dump()
                                                        : ordered_json::array({value}).dump());
      return true;
    case Format::kYaml:
      context.out << output::JsonToYaml(value.dump());
      return true;
    default:
      return false;
  }
}

Result ListContexts(const Context& context) {
  TY_ASSIGN_OR_RETURN(const ConfigFile config, LoadConfig(context));
  const std::string current = config.Current();
  output::Table table({{"CURRENT"}, {"NAME"}, {"SERVER"}});
  ordered_json list = ordered_json::array();
  for (const std::string& name : config.Names()) {
    const std::string server = config.Get(name, kServer).value_or("");
    const bool is_current = name == current;
    table.AddRow({is_current ? "*" : "", name, server});
    list.push_back({{"name", name}, {"server", server}, {"current", is_current}});
    if (context.options.format == Format::kName) context.out << name << "\n";
  }
  if (context.options.format == Format::kName || PrintObjects(context, list)) return link::kOk;
  if (list.empty()) {
    context.Say("no contexts; `trainyard contexts add lab ssh://lab` adds one");
  } else {
    context.out << table.Render();
  }
  return link::kOk;
}

Result ShowChoice(const Context& context) {
  TY_ASSIGN_OR_RETURN(const ServerChoice choice, ChooseServer(context));
  const ordered_json object = {
      {"server", choice.address}, {"context", choice.context}, {"reason", choice.reason}};
  if (context.options.format == Format::kName) {
    context.out << choice.address << "\n";
  } else if (!PrintObjects(context, object)) {
    context.out << "server   " << choice.address << "\nbecause  " << choice.reason << "\n";
  }
  return link::kOk;
}

Result AddContext(const Context& context, const AddOptions& options) {
  TY_RETURN_IF_ERROR(link::ServerLink::CheckAddress(options.address));
  TY_ASSIGN_OR_RETURN(ConfigFile config, LoadConfig(context));
  const std::vector<std::string> names = config.Names();
  if (std::find(names.begin(), names.end(), options.name) != names.end()) {
    if (!options.replace) {
      return absl::AlreadyExistsError(
          absl::StrCat("there is a context '", options.name, "' already, for ",
                       config.Get(options.name, kServer).value_or("no server"),
                       "; --replace gives the name to the new server"));
    }
    // Other keys of the context are removed with it, since they describe the old server.
    const bool was_current = config.Current() == options.name;
    TY_RETURN_IF_ERROR(config.Remove(options.name));
    TY_RETURN_IF_ERROR(config.Set(options.name, kServer, options.address));
    if (was_current) TY_RETURN_IF_ERROR(config.Use(options.name));
  } else {
    TY_RETURN_IF_ERROR(config.Set(options.name, kServer, options.address));
  }
  if (options.use) TY_RETURN_IF_ERROR(config.Use(options.name));
  TY_RETURN_IF_ERROR(config.Save());
  context.Say(config.Current() == options.name
                  ? absl::StrCat("commands now go to '", options.name, "', ", options.address)
                  : absl::StrCat("the context '", options.name, "' is ", options.address,
                                 "; `trainyard contexts use ", options.name,
                                 "` sends all commands there"));
  return link::kOk;
}

Result UseContext(const Context& context, const UseOptions& options) {
  if (options.none == !options.name.empty()) {
    return absl::InvalidArgumentError("give the NAME of a context, or --none");
  }
  TY_ASSIGN_OR_RETURN(ConfigFile config, LoadConfig(context));
  TY_RETURN_IF_ERROR(config.Use(options.name));
  TY_RETURN_IF_ERROR(config.Save());
  context.Say(options.none ? "commands go to a server of this machine again"
                           : absl::StrCat("commands now go to '", options.name, "', ",
                                          config.Get(options.name, kServer).value_or("no server")));
  return link::kOk;
}

Result RemoveContext(const Context& context, const NameOptions& options) {
  TY_ASSIGN_OR_RETURN(ConfigFile config, LoadConfig(context));
  const bool was_current = config.Current() == options.name;
  TY_RETURN_IF_ERROR(config.Remove(options.name));
  TY_RETURN_IF_ERROR(config.Save());
  context.Say(absl::StrCat("the context '", options.name, "' is removed",
                           was_current ? "; commands go to a server of this machine again" : ""));
  return link::kOk;
}

}  // namespace

void AddContexts(VerbTable& verbs) {
  verbs.Group("contexts", "Give names to servers, and choose one");
  verbs.Add("contexts ls", "List the contexts", "", ListContexts);
  verbs.Add("contexts show", "Show to which server commands go, and why", "", ShowChoice);
  verbs.Add<AddOptions>(
      "contexts add", "Give a name to a server", "lab ssh://anna@lab.example --use",
      [](client::Flags& flags, AddOptions& options) {
        flags.Word("NAME", options.name, "Name of the context").Required();
        flags.Word("ADDRESS", options.address, "unix:/path, ssh://[USER@]HOST or tls://HOST:PORT")
            .Required();
        flags.Switch("--use", options.use, "Send all commands there from now on");
        flags.Switch("--replace", options.replace, "Forget the server that has this name now");
      },
      AddContext);
  verbs.Add<UseOptions>(
      "contexts use", "Send all commands to the server of a context", "lab",
      [](client::Flags& flags, UseOptions& options) {
        const client::Flag name = flags.Word("NAME", options.name, "Name of the context");
        flags.Switch("--none", options.none, "Use no context: look for a server of this machine")
            .Excludes(name);
      },
      UseContext);
  verbs.Add<NameOptions>(
      "contexts rm", "Forget a context", "lab",
      [](client::Flags& flags, NameOptions& options) {
        flags.Word("NAME", options.name, "Name of the context").Required();
      },
      RemoveContext);
}

}  // namespace trainyard::commands
