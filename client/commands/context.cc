// Finds the server that a command talks to, and prints messages in the format that the user chose.
#include "client/commands/context.h"

#include <istream>
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/output/proto_text.h"
#include "client/spec_loader/yaml_tree.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/rpc/address.h"

namespace trainyard::commands {
namespace {

using spec_loader::YamlEntry;
using spec_loader::YamlNode;

const YamlNode* Find(const YamlNode& node, absl::string_view key) {
  for (const YamlEntry& entry : node.entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

// Returns the server of the current context, read from a file such as this:
//   current: lab
//   contexts:
//     lab: {server: "127.0.0.1:7070"}
absl::StatusOr<std::string> ConfiguredServer(const std::string& path) {
  const auto text = ReadFile(path, int64_t{1} << 20);
  if (absl::IsNotFound(text.status())) return "";
  TY_RETURN_IF_ERROR(text.status());
  const spec_loader::YamlDocument document = spec_loader::ParseYaml(*text);
  const auto refuse = [&path](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("config file '", path, "': ", why));
  };
  if (!document.mistakes.empty()) {
    const spec_loader::Mistake& mistake = document.mistakes.front();
    return refuse(absl::StrCat("line ", mistake.place.line, ": ", mistake.message));
  }
  const YamlNode* current = Find(document.root, "current");
  if (current == nullptr) return "";
  const YamlNode* contexts = Find(document.root, "contexts");
  const YamlNode* chosen = contexts == nullptr ? nullptr : Find(*contexts, current->text);
  if (chosen == nullptr) return refuse(absl::StrCat("there is no context '", current->text, "'"));
  const YamlNode* server = Find(*chosen, "server");
  if (server == nullptr || server->text.empty()) {
    return refuse(absl::StrCat("context '", current->text, "' has no server"));
  }
  return server->text;
}

}  // namespace

void Context::Say(absl::string_view text) const {
  if (!options.quiet) err << text << "\n" << std::flush;
}

absl::StatusOr<std::string> ServerAddress(const Context& context) {
  if (!context.options.server.empty()) return context.options.server;
  const Surroundings& around = context.surroundings;
  if (!around.server.empty()) return around.server;
  const std::string config_home =
      around.config_home.empty() ? JoinPath(around.home, ".config") : around.config_home;
  TY_ASSIGN_OR_RETURN(std::string configured,
                      ConfiguredServer(JoinPath(config_home, "trainyard/config.yaml")));
  if (!configured.empty()) return configured;
  return rpc::DefaultServerAddress(around.state_home, around.home);
}

absl::StatusOr<std::unique_ptr<link::ServerLink>> Connect(const Context& context) {
  TY_ASSIGN_OR_RETURN(const std::string address, ServerAddress(context));
  return link::ServerLink::Connect(address, context.interrupt, absl::Seconds(10),
                                   context.options.act_as);
}

bool Confirm(const Context& context, absl::string_view question, bool yes_by_default) {
  context.err << question << (yes_by_default ? " [Y/n] " : " [y/N] ") << std::flush;
  std::string answer;
  context.interrupt.AllowExit(true);
  std::getline(context.in, answer);
  context.interrupt.AllowExit(false);
  if (answer.empty()) return yes_by_default;
  return answer[0] == 'y' || answer[0] == 'Y';
}

bool PrintList(const Context& context,
               const std::vector<const google::protobuf::Message*>& messages,
               const std::vector<std::string>& names) {
  switch (context.options.format) {
    case Format::kTable:
    case Format::kWide:
      return false;
    case Format::kName:
      for (const std::string& name : names) context.out << name << "\n";
      break;
    case Format::kJsonLines:
      for (const auto* message : messages)
        context.out << output::ProtoJson(*message, false) << "\n";
      break;
    case Format::kJson:
    case Format::kYaml: {
      const bool is_json = context.options.format == Format::kJson;
      std::vector<std::string> texts;
      for (const auto* message : messages) {
        texts.push_back(output::ProtoJson(*message, is_json));
        absl::StripTrailingAsciiWhitespace(&texts.back());
      }
      const std::string list = absl::StrCat("[", absl::StrJoin(texts, ","), "]");
      context.out << (is_json ? list + "\n" : output::JsonToYaml(list));
      break;
    }
  }
  context.out << std::flush;
  return true;
}

bool PrintOne(const Context& context, const google::protobuf::Message& message,
              const std::string& name) {
  switch (context.options.format) {
    case Format::kJson:
      context.out << output::ProtoJson(message, true) << std::flush;
      return true;
    case Format::kYaml:
      context.out << output::JsonToYaml(output::ProtoJson(message, false)) << std::flush;
      return true;
    default:
      return PrintList(context, {&message}, {name});
  }
}

std::string Counted(size_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

}  // namespace trainyard::commands
