// This is the only file that includes CLI11. The facade maps to it one to one, except that we
// decide here how mistakes of use are reported.
#include "client/flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/flag_style.h"
#include "common/base/strings.h"

namespace trainyard::client {
namespace {

constexpr int kUsage = 2;
constexpr size_t kFlagColumn = 34;

// Returns all names of a flag: "-o", "--output".
std::vector<std::string> NamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

// Adds the values of the flags of a level.
void CollectChoices(const CLI::App& level, const Choices& choices, VerbInfo& info) {
  for (const CLI::Option* option : level.get_options()) {
    const auto found = choices.find(option);
    if (found == choices.end()) continue;
    for (const std::string& name : NamesOf(*option)) info.choices[name] = found->second;
  }
}

void Collect(const CLI::App& app, const std::string& prefix, const Choices& choices,
             std::vector<VerbInfo>& verbs) {
  for (const CLI::App* verb : app.get_subcommands({})) {
    const std::string name = prefix + verb->get_name();
    if (!verb->get_subcommands({}).empty()) {
      Collect(*verb, name + " ", choices, verbs);
      continue;
    }
    VerbInfo info{name, verb->get_description(), {}, {}, {}};
    CollectChoices(*verb, choices, info);
    for (const CLI::Option* option : verb->get_options()) {
      if (option->get_positional()) info.words.push_back(option->get_name());
    }
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

using Synonyms = std::map<std::string, std::vector<std::string>>;

std::vector<std::string> VerbsOf(const CLI::App& level) {
  std::vector<std::string> names;
  for (const CLI::App* verb : level.get_subcommands({})) names.push_back(verb->get_name());
  return names;
}

const CLI::App* FindVerb(const CLI::App& level, const std::string& name) {
  for (const CLI::App* verb : level.get_subcommands({})) {
    if (verb->get_name() == name) return verb;
  }
  return nullptr;
}

// Returns the level that the words choose: the program, a group or a verb. The first word that
// should choose a verb and does not is kept in `stray`.
const CLI::App& LevelOf(const CLI::App& app, const std::vector<std::string>& args,
                        std::string& stray) {
  const CLI::App* level = &app;
  for (const std::string& arg : args) {
    if (level->get_subcommands({}).empty() || arg == "--") break;
    if (arg.empty() || arg[0] == '-') continue;
    const CLI::App* verb = FindVerb(*level, arg);
    if (verb != nullptr) {
      level = verb;
      stray.clear();
    } else if (stray.empty()) {
      stray = arg;  // unless it is the value of a flag, and the verb is still to come
    }
  }
  return *level;
}

// Returns the words that choose the level: "trainyard checkpoints get".
std::string PathOf(const CLI::App& level) {
  const CLI::App* parent = level.get_parent();
  return parent == nullptr ? level.get_name()
                           : absl::StrCat(PathOf(*parent), " ", level.get_name());
}

// Returns "; did you mean 'ls'?" for a word that is no verb, or all verbs of a group. The program
// has too many of them to list.
std::string VerbSuggestion(const CLI::App& level, const std::string& word,
                           const Synonyms& synonyms) {
  std::vector<std::string> meant;
  if (const auto synonym = synonyms.find(word); synonym != synonyms.end()) {
    for (const std::string& verb : synonym->second) {
      if (FindVerb(level, verb) != nullptr) meant.push_back(verb);
    }
  }
  const std::vector<std::string> verbs = VerbsOf(level);
  if (meant.empty()) {
    const std::string nearest = NearestWord(word, verbs);
    if (!nearest.empty()) meant.push_back(nearest);
  }
  if (!meant.empty()) {
    return absl::StrCat("; did you mean '", absl::StrJoin(meant, "' or '"), "'?");
  }
  return level.get_parent() == nullptr ? ""
                                       : absl::StrCat("; expected ", absl::StrJoin(verbs, ", "));
}

bool HasFlag(const CLI::App& level, const std::string& name) {
  for (const CLI::App* app = &level; app != nullptr; app = app->get_parent()) {
    if (app->get_option_no_throw(name) != nullptr) return true;
  }
  return false;
}

std::vector<std::string> FlagNames(const CLI::App& level) {
  std::vector<std::string> names;
  for (const CLI::App* app = &level; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  return names;
}

// Returns the flag that is meant: the nearest one, or else the only one that begins so.
std::string FlagSuggestion(const CLI::App& level, const std::string& name) {
  const std::vector<std::string> names = FlagNames(level);
  std::string meant = NearestWord(name, names);
  if (meant.empty()) {
    const auto begins_so = [&](const std::string& flag) { return absl::StartsWith(flag, name); };
    if (std::count_if(names.begin(), names.end(), begins_so) == 1) {
      meant = *std::find_if(names.begin(), names.end(), begins_so);
    }
  }
  return meant.empty() ? "" : absl::StrCat("; did you mean '", meant, "'?");
}

// Returns what is wrong with the first word that nobody expected. CLI11 names such words in reverse
// order.
std::string ExtraText(const CLI::App& app, const CLI::App& level,
                      const std::vector<std::string>& args) {
  for (const std::string& arg : args) {
    if (arg == "--") break;
    const bool is_number =
        arg.size() > 1 &&
        (absl::ascii_isdigit(static_cast<unsigned char>(arg[1])) || arg[1] == '.');
    if (arg.size() < 2 || arg[0] != '-' || is_number) continue;
    const std::string name = FlagInStyle(arg.substr(0, arg.find('=')), FlagStyle::kHyphens);
    if (!absl::StartsWith(name, "--") || HasFlag(level, name)) continue;
    return absl::StrCat("unknown option '", arg.substr(0, arg.find('=')), "'",
                        FlagSuggestion(level, name));
  }
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  return extras.empty() ? "too many arguments"
                        : absl::StrCat("'", extras.front(), "' is not expected here");
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
  return Offers(words);
}

Flag& Flag::Offers(const std::vector<std::string>& words) {
  (*choices_)[option_] = words;
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
  return Flag(verb_->add_option(name, value, help), *choices_);
}

Flag Flags::Words(const std::string& name, std::vector<std::string>& values,
                  const std::string& help) {
  return Flag(verb_->add_option(name, values, help), *choices_);
}

Flag Flags::Value(const std::string& names, std::string& value, const std::string& help) {
  return Flag(verb_->add_option(names, value, help), *choices_);
}

Flag Flags::Value(const std::string& names, int& value, const std::string& help) {
  return Flag(verb_->add_option(names, value, help), *choices_);
}

Flag Flags::Value(const std::string& names, int64_t& value, const std::string& help) {
  return Flag(verb_->add_option(names, value, help), *choices_);
}

Flag Flags::Value(const std::string& names, std::optional<int>& value, const std::string& help) {
  return Flag(verb_->add_option(names, value, help), *choices_);
}

Flag Flags::Repeated(const std::string& names, std::vector<std::string>& values,
                     const std::string& help) {
  return Flag(verb_->add_option(names, values, help)->allow_extra_args(false), *choices_);
}

Flag Flags::Switch(const std::string& names, bool& value, const std::string& help) {
  return Flag(verb_->add_flag(names, value, help), *choices_);
}

void Flags::Rest(const std::string& name, std::vector<std::string>& values,
                 const std::string& help) {
  (*rests_)[verb_] = &values;
  const std::string heading = absl::StrCat("  -- ", name);
  const std::string gap(kFlagColumn - heading.size(), ' ');
  verb_->footer(
      absl::StrCat("After the options:\n", heading, gap, help, "\n\n", verb_->get_footer()));
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
  return Flags(app_.get(), rests_, choices_);
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
  return Flags(verb, rests_, choices_);
}

void CommandLine::SetVersion(const std::string& text) {
  app_->set_version_flag("--version", text, "Print the version and exit");
}

void CommandLine::AddSynonym(const std::string& word, const std::vector<std::string>& verbs) {
  synonyms_[word] = verbs;
}

CommandLine::Outcome CommandLine::Parse(const std::vector<std::string>& args) {
  Outcome outcome;
  std::vector<std::string> words = FlagsInStyle(args, FlagStyle::kHyphens);
  const bool asks_for_help = !words.empty() && words.front() == "help";
  if (asks_for_help) words.erase(words.begin());
  std::string stray;
  const CLI::App& level = LevelOf(*app_, words, stray);
  const auto refuse = [&](absl::string_view why) {
    outcome.exit_code = kUsage;
    outcome.err = absl::StrCat(program_, ": ", why, "\ntry: ", PathOf(level), " --help\n");
    return outcome;
  };
  const std::string unknown_verb =
      absl::StrCat("unknown command '", stray, "'", VerbSuggestion(level, stray, synonyms_));
  if (asks_for_help) {
    if (!stray.empty()) return refuse(unknown_verb);
    words.emplace_back("--help");
  }
  if (const auto rest = rests_.find(&level); rest != rests_.end()) {
    const auto dashes = std::find(words.begin(), words.end(), "--");
    if (dashes != words.end()) {
      rest->second->assign(dashes + 1, words.end());
      words.erase(dashes, words.end());
      if (rest->second->empty()) return refuse("a command is missing after '--'");
    }
  }
  // CLI11 takes the arguments from the back of the vector.
  std::reverse(words.begin(), words.end());
  try {
    app_->parse(words);
    outcome.verb = chosen_;
  } catch (const CLI::Success& success) {  // --help and --version
    std::ostringstream out;
    std::ostringstream err;
    outcome.exit_code = app_->exit(success, out, err);
    outcome.out = out.str();
  } catch (const CLI::ParseError& error) {
    if (!stray.empty()) return refuse(unknown_verb);
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
      return refuse(ExtraText(*app_, level, args));
    }
    if (!level.get_subcommands({}).empty()) {
      const std::vector<std::string> verbs = VerbsOf(level);
      return refuse(level.get_parent() == nullptr
                        ? std::string("a verb is missing, such as ls or submit")
                        : absl::StrCat("'", PathOf(level), "' needs one of ",
                                       absl::StrJoin(verbs, ", "), " after it"));
    }
    return refuse(error.what());
  }
  return outcome;
}

std::vector<VerbInfo> CommandLine::Describe() const {
  std::vector<VerbInfo> verbs;
  Collect(*app_, "", choices_, verbs);
  return verbs;
}

VerbInfo CommandLine::DescribeGlobals() const {
  VerbInfo info;
  CollectChoices(*app_, choices_, info);
  for (const CLI::Option* option : app_->get_options()) {
    if (option->get_items_expected_max() == 0) continue;  // it has no value
    for (std::string& name : NamesOf(*option)) info.flags.push_back(std::move(name));
  }
  return info;
}

}  // namespace trainyard::client
