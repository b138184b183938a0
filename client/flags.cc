// This is the only file that includes CLI11. The facade maps to it one to one, except that we
// decide here how mistakes of use are reported.
#include "client/flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/strings.h"

namespace trainyard::client {
namespace {

constexpr int kUsage = 2;
constexpr size_t kFlagColumn = 34;

void Collect(const CLI::App& app, const std::string& prefix, std::vector<VerbInfo>& verbs) {
  for (const CLI::App* verb : app.get_subcommands({})) {
    const std::string name = prefix + verb->get_name();
    if (!verb->get_subcommands({}).empty()) {
      Collect(*verb, name + " ", verbs);
      continue;
    }
    VerbInfo info{name, verb->get_description(), {}};
    for (const CLI::App* level = verb; level != nullptr; level = level->get_parent()) {
      for (const CLI::Option* option : level->get_options()) {
        for (const std::string& flag : option->get_lnames()) info.flags.push_back("--" + flag);
      }
    }
    std::sort(info.flags.begin(), info.flags.end());
    info.flags.erase(std::unique(info.flags.begin(), info.flags.end()), info.flags.end());
    verbs.push_back(std::move(info));
  }
}

// Returns a message with the nearest verb if the first word is no verb. Returns nothing otherwise,
// and the user then reads the message of CLI11.
std::string VerbHint(const CLI::App& app, const std::vector<std::string>& args) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands({})) names.push_back(verb->get_name());
  for (const std::string& arg : args) {
    if (!arg.empty() && arg[0] == '-') continue;
    if (std::find(names.begin(), names.end(), arg) != names.end()) return "";
    const std::string nearest = NearestWord(arg, names);
    return absl::StrCat("unknown command '", arg, "'",
                        nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?"));
  }
  return "";
}

}  // namespace

Flag& Flag::Required() {
  option_->required();
  return *this;
}

Flag& Flag::Range(int64_t least, int64_t most) {
  option_->check(CLI::Range(least, most).description(""));
  return *this;
}

Flag& Flag::Positive() {
  option_->check(CLI::PositiveNumber.description(""));
  return *this;
}

Flag& Flag::OneOf(const std::vector<std::string>& words) {
  option_->check(CLI::IsMember(words).description(""));
  return *this;
}

Flag& Flag::Check(std::function<std::string(const std::string&)> check) {
  option_->check(CLI::Validator(
      [check = std::move(check)](const std::string& text) { return check(text); }, ""));
  return *this;
}

Flag& Flag::Count(int least, int most) {
  option_->expected(least, most);
  return *this;
}

Flag& Flag::ShownAs(const std::string& text) {
  option_->type_name(text);
  return *this;
}

Flag& Flag::Excludes(const Flag& other) {
  option_->excludes(other.option_);
  return *this;
}

Flag Flags::Word(const std::string& name, std::string& value, const std::string& help) {
  return Flag(verb_->add_option(name, value, help));
}

Flag Flags::Words(const std::string& name, std::vector<std::string>& values,
                  const std::string& help) {
  return Flag(verb_->add_option(name, values, help));
}

Flag Flags::Value(const std::string& names, std::string& value, const std::string& help) {
  return Flag(verb_->add_option(names, value, help));
}

Flag Flags::Value(const std::string& names, int& value, const std::string& help) {
  return Flag(verb_->add_option(names, value, help));
}

Flag Flags::Value(const std::string& names, int64_t& value, const std::string& help) {
  return Flag(verb_->add_option(names, value, help));
}

Flag Flags::Value(const std::string& names, std::optional<int>& value, const std::string& help) {
  return Flag(verb_->add_option(names, value, help));
}

Flag Flags::Repeated(const std::string& names, std::vector<std::string>& values,
                     const std::string& help) {
  return Flag(verb_->add_option(names, values, help)->allow_extra_args(false));
}

Flag Flags::Switch(const std::string& names, bool& value, const std::string& help) {
  return Flag(verb_->add_flag(names, value, help));
}

CommandLine::CommandLine(const std::string& program, const std::string& summary,
                         const std::string& footer)
    : program_(program), app_(std::make_unique<CLI::App>(summary, program)) {
  app_->require_subcommand(1);
  app_->fallthrough();
  app_->get_formatter()->column_width(kFlagColumn);
  app_->footer(footer);
}

CommandLine::~CommandLine() = default;

Flags CommandLine::Globals() {
  return Flags(app_.get());
}

void CommandLine::AddGroup(const std::string& name, const std::string& summary) {
  CLI::App* group = app_->add_subcommand(name, summary);
  group->require_subcommand(1);
  group->fallthrough();
}

Flags CommandLine::AddVerb(const std::string& name, const std::string& summary,
                           const std::string& example) {
  const size_t space = name.find(' ');
  CLI::App* parent =
      space == std::string::npos ? app_.get() : app_->get_subcommand(name.substr(0, space));
  CLI::App* verb =
      parent->add_subcommand(space == std::string::npos ? name : name.substr(space + 1), summary);
  verb->fallthrough();
  verb->footer(
      absl::StrCat("Example:\n  ", program_, " ", name, example.empty() ? "" : " ", example));
  verb->callback([this, name] { chosen_ = name; });
  return Flags(verb);
}

CommandLine::Outcome CommandLine::Parse(const std::vector<std::string>& args) {
  Outcome outcome;
  // CLI11 takes the arguments from the back of the vector.
  std::vector<std::string> reversed(args.rbegin(), args.rend());
  try {
    app_->parse(reversed);
    outcome.verb = chosen_;
  } catch (const CLI::Success& success) {  // --help
    std::ostringstream out;
    std::ostringstream err;
    outcome.exit_code = app_->exit(success, out, err);
    outcome.out = out.str();
  } catch (const CLI::ParseError& error) {
    const std::string hint = VerbHint(*app_, args);
    outcome.exit_code = kUsage;
    outcome.err = absl::StrCat(program_, ": ", hint.empty() ? error.what() : hint,
                               "\ntry: ", program_, " --help\n");
  }
  return outcome;
}

std::vector<VerbInfo> CommandLine::Describe() const {
  std::vector<VerbInfo> verbs;
  Collect(*app_, "", verbs);
  return verbs;
}

}  // namespace trainyard::client
