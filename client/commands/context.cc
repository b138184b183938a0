// Prints messages in the format that the user chose.
#include "client/commands/context.h"

#include <istream>
#include <ostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/output/csv.h"
#include "client/output/proto_text.h"
#include "common/base/files.h"

namespace trainyard::commands {

void Context::Say(absl::string_view text) const {
  if (!options.quiet) err << text << "\n" << std::flush;
}

std::optional<std::string> VariableOf(const Surroundings& around, absl::string_view name) {
  for (const std::string& variable : around.environment) {
    absl::string_view value = variable;
    if (absl::ConsumePrefix(&value, name) && absl::ConsumePrefix(&value, "=")) {
      return std::string(value);
    }
  }
  return std::nullopt;
}

std::string ConfigHome(const Surroundings& around) {
  return around.config_home.empty() ? JoinPath(around.home, ".config") : around.config_home;
}

bool Confirm(const Context& context, absl::string_view question, bool yes_by_default) {
  context.err << question << (yes_by_default ? " [Y/n] " : " [y/N] ") << std::flush;
  std::string answer;
  context.interrupt.AllowExit(true);
  const bool is_answered = static_cast<bool>(std::getline(context.in, answer));
  context.interrupt.AllowExit(false);
  if (!is_answered) {
    // Whoever ends the input (Ctrl-D) has pressed no Enter, and has not agreed to anything.
    context.err << "\n";
    return false;
  }
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
    case Format::kCsv:
    case Format::kYaml: {
      const bool is_json = context.options.format == Format::kJson;
      std::vector<std::string> texts;
      for (const auto* message : messages) {
        texts.push_back(output::ProtoJson(*message, is_json));
        absl::StripTrailingAsciiWhitespace(&texts.back());
      }
      const std::string list = absl::StrCat("[", absl::StrJoin(texts, ","), "]");
      context.out << (is_json                                  ? list + "\n"
                      : context.options.format == Format::kCsv ? output::JsonToCsv(list)
                                                               : output::JsonToYaml(list));
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
