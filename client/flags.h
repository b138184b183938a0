// The grammar of the command line: verbs, groups of verbs, and their flags. It hides CLI11, whose
// headers take seconds to compile; flags.cc alone includes them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace trainyard::client {

// A flag, or a word that stands without one, after it was declared. The calls add to its rules.
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}

  Flag& Required();
  // An integer between these, both included.
  Flag& Range(int64_t least, int64_t most);
  Flag& Positive();
  Flag& OneOf(const std::vector<std::string>& words);
  // `check` returns what is wrong with a value, and "" for one that is right.
  Flag& Check(std::function<std::string(const std::string&)> check);
  // The number of words that it takes.
  Flag& Count(int least, int most);
  // What --help shows in the place of the type of its value.
  Flag& ShownAs(const std::string& text);
  Flag& Excludes(const Flag& other);

 private:
  CLI::Option* option_;
};

// Where a verb declares its flags. Each call binds a flag to a field, which must outlive the
// command line; parsing fills it in, and leaves it alone where the flag is not given. `names` is
// "--all", or "-a,--all".
class Flags {
 public:
  explicit Flags(CLI::App* verb) : verb_(verb) {}

  // A word without a flag, such as FILE.
  Flag Word(const std::string& name, std::string& value, const std::string& help);
  Flag Words(const std::string& name, std::vector<std::string>& values, const std::string& help);
  // A flag with a value.
  Flag Value(const std::string& names, std::string& value, const std::string& help);
  Flag Value(const std::string& names, int& value, const std::string& help);
  Flag Value(const std::string& names, int64_t& value, const std::string& help);
  Flag Value(const std::string& names, std::optional<int>& value, const std::string& help);
  // A flag that may be repeated, with one value each time.
  Flag Repeated(const std::string& names, std::vector<std::string>& values,
                const std::string& help);
  // A flag without a value.
  Flag Switch(const std::string& names, bool& value, const std::string& help);

 private:
  CLI::App* verb_;
};

// A verb as completion shows it.
struct VerbInfo {
  std::string name;  // "checkpoints get"
  std::string summary;
  std::vector<std::string> flags;  // "--follow"
};

class CommandLine {
 public:
  struct Outcome {
    // Empty where no verb is to run: `exit_code` and the texts say what happens instead.
    std::string verb;
    int exit_code = 0;
    std::string out;
    std::string err;
  };

  // `footer` ends the help of the program.
  CommandLine(const std::string& program, const std::string& summary, const std::string& footer);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Flags of all verbs, which may stand before the verb and behind it.
  Flags Globals();
  // A word before verbs, such as "checkpoints".
  void AddGroup(const std::string& name, const std::string& summary);
  // `name` is "ls", or "checkpoints ls" where the group was added before. `example` is what stands
  // behind the name in the example of the help.
  Flags AddVerb(const std::string& name, const std::string& summary, const std::string& example);

  // `args` without the program's name.
  Outcome Parse(const std::vector<std::string>& args);
  std::vector<VerbInfo> Describe() const;

 private:
  const std::string program_;
  const std::unique_ptr<CLI::App> app_;
  std::string chosen_;
};

}  // namespace trainyard::client
